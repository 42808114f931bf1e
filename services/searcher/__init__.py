"""The searcher: decides which trials an experiment runs, how long each trains, and when the search is over."""
