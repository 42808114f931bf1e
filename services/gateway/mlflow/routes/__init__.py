"""Routes of MLflow's protocol, one module per kind."""
