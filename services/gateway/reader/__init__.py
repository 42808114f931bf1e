"""Processes that read what users send."""
