"""What the gateway does outside of its views and its door: files, other processes, the log, stores of checkpoints."""
