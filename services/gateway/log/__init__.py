"""The log: its events, time travel by them, and its integrity."""
