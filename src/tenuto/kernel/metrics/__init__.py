"""Training metrics as columns of numbers: how the points of a trial are merged, cut into chunks, packed into bytes, and thinned
for a picture. Pure functions, which the tracker writes with and the gateway reads with."""
