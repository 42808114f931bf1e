"""Queries of the read models of trials."""
