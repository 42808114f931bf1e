"""Connections of the gateway to the outside, for the cluster."""
