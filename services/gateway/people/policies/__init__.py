"""Pure rules of people."""
