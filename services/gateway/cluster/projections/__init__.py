"""Folds of the read models of the cluster."""
