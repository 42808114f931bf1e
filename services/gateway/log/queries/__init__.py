"""Queries of the read models of the log."""
