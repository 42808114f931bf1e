"""Metrics of a service's process, for Prometheus. The catalogue names all of them; docs/metrics.md explains their use."""
