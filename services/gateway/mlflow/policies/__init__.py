"""Pure rules of MLflow's protocol."""
