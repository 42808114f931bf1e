"""The common base of all services: event log, bus, service loop, clock."""
