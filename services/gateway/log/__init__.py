"""The log: its events, time travel by them, and whether it is intact."""
