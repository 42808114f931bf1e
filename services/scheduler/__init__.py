"""Scheduling of slots: gangs of slots granted, preempted and released, one pool at a time."""
