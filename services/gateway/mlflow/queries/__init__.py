"""Queries of the read models of MLflow's protocol."""
