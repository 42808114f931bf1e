"""What is outside of the gateway, for experiments."""
