"""Adapters of automations to everything outside of the gateway."""
