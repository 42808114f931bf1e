"""Policy of nodes that come and go, pure: what is requested, given back and given up, and what is ordered at the provider."""
