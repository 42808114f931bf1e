"""Tenuto: deep-learning training that keeps its place."""

__version__ = "0.1.0"
