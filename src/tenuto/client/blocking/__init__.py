"""The client for programs without an event loop. Most of it is made from `aio`: see docs/blocking_client.py."""
