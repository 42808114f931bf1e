"""What each start of a trial puts on record: the environment it runs in, and fingerprints of the data it declares."""
