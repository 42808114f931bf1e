"""Pure rules of notices."""
