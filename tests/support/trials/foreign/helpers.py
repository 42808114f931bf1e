"""Globals that another module changes."""

CALLS = 0
HISTORY = []
