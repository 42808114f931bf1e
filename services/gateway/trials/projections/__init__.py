"""Folds of the read models of trials."""
