"""What the searcher uses from outside its pure rooms."""
