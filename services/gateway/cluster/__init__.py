"""The cluster: agents, nodes, pools, the queue and shares."""
