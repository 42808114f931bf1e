"""Code that handlers of the log share, with each other and with those of other subjects."""
