"""Rules that choose which waiting trial gets slots next. A policy is a pure function of the state and one pool."""
