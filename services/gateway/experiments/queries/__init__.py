"""Queries of the read models of experiments."""
