"""A plug-in whose package runs into an error when it is imported."""

raise ZeroDivisionError("when it is imported")
