"""Libraries that the searcher uses outside its pure rooms."""
