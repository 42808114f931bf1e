"""Runtime docker: each run is a container of the image that its configuration names, with the harness that the agent brings."""
