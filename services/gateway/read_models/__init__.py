"""Code that the queries and folds of the read models share."""
