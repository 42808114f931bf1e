"""Adapters of notices to everything outside of the gateway."""
