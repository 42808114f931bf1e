"""Who may use which slots, and why: gangs of slots granted, preempted and released, one pool at a time."""
