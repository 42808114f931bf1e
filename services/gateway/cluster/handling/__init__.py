"""Code that handlers of the cluster share, with each other and with those of other subjects."""
