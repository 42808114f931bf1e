"""Leases of agents in tests, by what a test says of placement.

An agent that gets no time on a crowded machine is lost when its lease is over, and what it ran begins again: on the same agent if
it is back by then. Where a test says on which agents a trial ran, the lease outlives the test; where it waits for an agent that
was killed to be lost, the lease is as long as a crowded machine needs.
"""

from __future__ import annotations

OUTLIVES_THE_TEST = {"TENUTO_LEASE_SECONDS_MAX": "1800"}
"""Three times the longest of these tests: only what the test does itself ends a run."""
BEARS_A_CROWD = {"TENUTO_LEASE_SECONDS_MAX": "30"}
"""An agent's own thread repeats its heartbeat while the agent is busy: only a machine that stands still for so long loses one."""
