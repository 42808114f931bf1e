"""Functions that handlers of experiments share, with each other and with those of other subjects."""
