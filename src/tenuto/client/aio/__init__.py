"""The client for programs with an event loop. What is here is the source of `blocking`, too: see docs/blocking_client.py."""
