"""The REST door itself: the steps that every request passes, on any subject."""
