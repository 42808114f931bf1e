"""The worker protocol: gRPC between a worker process and its node's agent, over a unix socket."""
