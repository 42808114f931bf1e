"""MLflow's tracking protocol, for runs that are tracked and not scheduled."""
