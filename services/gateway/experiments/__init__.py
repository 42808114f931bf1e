"""Experiments: submitted, changed, derived, deleted."""
