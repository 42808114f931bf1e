"""State of a user's own objects (samplers, streams, the Trial itself): found, saved with checkpoints and restored."""
