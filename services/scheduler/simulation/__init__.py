"""The scheduler's own core under a virtual clock: generated, public and recorded histories, run under any policy."""
