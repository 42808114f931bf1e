"""What every service stands on: the event log, the bus, the service loop, the clock."""
