"""The laptop cluster: PostgreSQL and NATS from their wheels, the services under a supervisor, one agent."""
