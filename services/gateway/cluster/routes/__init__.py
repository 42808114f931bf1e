"""Routes of the cluster, one module per kind."""
