"""What is outside of the gateway, for the cluster."""
