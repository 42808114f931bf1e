"""A trial's checkpoints as its worker sees them: saved off the training path (`writer`), restored verified (`restoring`)."""
