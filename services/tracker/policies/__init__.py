"""Rules that the tracker's decisions follow."""
