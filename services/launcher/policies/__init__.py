"""Rules that the launcher's decisions follow."""
