"""A trial in the foreground: the harness in this process, without agent and cluster."""
