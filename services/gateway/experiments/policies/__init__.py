"""Pure rules of experiments."""
