"""Record of each start of a trial: the environment it runs in, and fingerprints of the data it declares."""
