"""Templates of configurations, and the defaults of workspaces."""
