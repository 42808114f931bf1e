"""Automations: programs of users that react to the log."""
