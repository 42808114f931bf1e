"""The REST door itself: what each request passes, whatever it is about."""
