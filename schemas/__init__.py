"""The published language: events, commands, configuration, wire messages and subjects. Pure data, no I/O."""
