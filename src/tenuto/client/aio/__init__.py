"""The client for programs with an event loop. It is also the source of `blocking`: see docs/blocking_client.py."""
