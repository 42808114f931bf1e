"""A PyTorch trial on several slots: one process (rank) per slot, each with its share of every batch."""
