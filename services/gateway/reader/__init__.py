"""Processes that read files and texts of users."""
