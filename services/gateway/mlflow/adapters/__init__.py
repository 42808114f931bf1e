"""Connections of the gateway to the outside, for MLflow's protocol."""
