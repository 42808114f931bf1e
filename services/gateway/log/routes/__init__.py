"""Routes of the log, one module per kind."""
