"""Routes of trials, one module per kind."""
