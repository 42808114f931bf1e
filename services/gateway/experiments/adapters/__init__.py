"""Adapters of experiments to systems outside the gateway."""
