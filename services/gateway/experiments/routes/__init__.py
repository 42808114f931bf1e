"""Routes of experiments, one module per kind."""
