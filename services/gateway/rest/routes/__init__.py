"""The handlers of the REST door, one module per subject."""
