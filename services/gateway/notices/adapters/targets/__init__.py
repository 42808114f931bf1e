"""Targets of notices: one module each, behind the protocol of `target`. `opening` makes them."""
