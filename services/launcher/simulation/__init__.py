"""Nodes that come and go under a virtual clock: the launcher's own core, a simulated provider, and a threshold beside it."""
