"""Pure rules of the cluster."""
