"""What is outside of the gateway, for MLflow's protocol."""
