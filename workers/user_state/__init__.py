"""State that a user's own objects keep (samplers, streams, the Trial itself): found, saved with checkpoints and put back."""
