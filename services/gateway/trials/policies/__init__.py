"""Pure rules of trials."""
