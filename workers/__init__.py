"""What runs on nodes: the agent, the harness, the Trial API."""
