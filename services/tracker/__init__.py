"""The tracker: what trials achieved, which of their checkpoints are kept, and when they have failed or finished."""
