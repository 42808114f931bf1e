"""Adapters of the launcher: what starts and ends nodes."""
