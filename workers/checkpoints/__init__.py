"""A trial's checkpoints on the worker's side: saved in the background (`writer`), verified when restored (`restoring`)."""
