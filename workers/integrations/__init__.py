"""Callbacks that speak the Core API for other training loops. Each module imports its framework; nothing imports it unasked."""
