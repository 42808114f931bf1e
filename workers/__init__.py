"""Programs and libraries that run on nodes: the agent, the harness, the Trial API."""
