"""Routes of people, one module per kind."""
