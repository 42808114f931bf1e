"""A script that trains and tells nobody."""

# It knows of determined, and calls nothing of it.
print("trained for hours")
