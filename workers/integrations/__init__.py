"""Callbacks that connect other training loops to the Core API. Each module imports its framework, and is imported only on
request."""
