"""Pure rules of the gateway: what differs between two runs, how much it likely matters, and how one is made from another."""
