"""Runtime process: workers are processes of the agent's own machine, started cold or forked from one that has imported the
framework."""
