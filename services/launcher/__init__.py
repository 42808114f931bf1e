"""The launcher: turns granted allocations into running workers on agents, and records what became of them."""
