"""Code that handlers of people share, with each other and with those of other subjects."""
