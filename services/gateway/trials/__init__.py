"""Trials: metrics, logs, checkpoints."""
