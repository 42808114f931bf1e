"""Code that handlers of trials share, with each other and with those of other subjects."""
