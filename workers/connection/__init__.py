"""A worker's connection to its agent: what the agent directs, and what it is told."""
