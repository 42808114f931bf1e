"""All metrics: their names, units, labels and meanings. The reference in the documents is made of it.

Labels have few values: services, consumers, lanes, routes, pools. No id of an experiment, a trial, an agent or a user is one: a
label's values are kept for as long as a process of Prometheus keeps anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
FAST_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of buckets for what takes milliseconds in a healthy cluster."""
DOOR_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 20.0)
"""Fewer for requests: there are as many series for each route."""
SLOW_SECONDS = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0)
"""Buckets for actions outside the cluster's services, such as the deletion of a checkpoint."""


@dataclass(frozen=True)
class Measure:
    name: str
    kind: Kind
    services: str
    """Services that have it, with commas between."""
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = FAST_SECONDS


ALL = "all"
DECIDING = "searcher, scheduler, launcher, tracker, gateway"
RECEIVING = "launcher, tracker"
ACTING = "tracker, gateway"

BUILD_INFO = Measure(
    "tenuto_build_info", "gauge", ALL, "1; its labels say which service runs, and in which version.", ("service", "version")
)
READY = Measure("tenuto_ready", "gauge", ALL, "1 if `/readyz` says so.")
LOG_AVAILABLE = Measure(
    "tenuto_log_available", "gauge", ALL, "1 if the event log could be read at the last look, and written at the last commit."
)
BUS_CONNECTED = Measure("tenuto_bus_connected", "gauge", ALL, "1 if the process is connected to NATS.")
SAMPLE_FAILURES = Measure(
    "tenuto_sample_failures_total", "counter", ALL,
    "Looks at a source of gauges that failed or took too long; its gauges are left out until it answers.", ("source",),
)  # fmt: skip
LOG_HEAD = Measure("tenuto_log_head_position", "gauge", ALL, "Position of the last event of the log.")
CONSUMER_POSITION = Measure(
    "tenuto_consumer_position", "gauge", ALL,
    "Position up to which a consumer has handled the log: a service's core, `views` (lists and pages of the "
    "gateway), `relay`.", ("consumer",),
)  # fmt: skip
CONSUMER_LAG = Measure(
    "tenuto_consumer_lag_events", "gauge", ALL, "Events of the log that the consumer has not handled yet.", ("consumer",)
)

INPUTS = Measure("tenuto_inputs_total", "counter", DECIDING, "Events that a service has read from the log.", ("service",))
RECORDED = Measure(
    "tenuto_events_recorded_total", "counter", DECIDING, "Events that a service has decided and recorded.", ("service",)
)
COMMANDS = Measure(
    "tenuto_commands_total", "counter", DECIDING,
    "Commands (requests and reports) that were decided on, by outcome: accepted, refused, failed.", ("service", "outcome"),
)  # fmt: skip
COMMANDS_WAITING = Measure("tenuto_commands_waiting", "gauge", DECIDING, "Commands that wait for a decision.", ("service",))
DECIDE_SECONDS = Measure(
    "tenuto_decide_seconds", "histogram", DECIDING, "Time to fold and decide on what goes into one commit.", ("service",)
)
COMMIT_SECONDS = Measure(
    "tenuto_commit_seconds",
    "histogram",
    DECIDING,
    "Time of a commit of events, with all waits for a log that cannot be reached.",
    ("service",),
)
DECISION_SECONDS = Measure(
    "tenuto_decision_seconds", "histogram", DECIDING,
    "Time from an event until what a service decided on it is recorded, of the oldest event of each commit. It "
    "compares the clocks of two "
    "processes; after a restart it has the time of the standstill.", ("service",),
)  # fmt: skip
COMMAND_SECONDS = Measure(
    "tenuto_command_seconds",
    "histogram",
    DECIDING,
    "Time from a command until it is answered, its commit included.",
    ("service",),
)

PUBLISHED = Measure("tenuto_relay_published_total", "counter", "relay", "Events of the log that were published to NATS.")
PUBLISH_SECONDS = Measure(
    "tenuto_relay_publish_seconds", "histogram", "relay", "Time until a batch of events was stored by NATS."
)
BUS_STORES = Measure(
    "tenuto_bus_stores", "gauge", "relay", "1 if NATS stores what it is sent; 0: `tenuto status` says what is wrong."
)

REPORTS = Measure("tenuto_ingress_reports_total", "counter", RECEIVING, "Reports of agents that were committed.", ("lane",))
INGRESS_SECONDS = Measure(
    "tenuto_ingress_commit_seconds", "histogram", RECEIVING, "Time to commit a batch of reports, with all attempts.", ("lane",)
)
REPORTS_PARKED = Measure(
    "tenuto_ingress_parked_total", "counter", RECEIVING, "Reports that could not be handled, and were parked.", ("lane",)
)
REPORTS_WAITING = Measure(
    "tenuto_ingress_waiting_reports", "gauge", "launcher",
    "Reports that are not in the record yet: in agents' spools, by their heartbeats, those on the bus included.", ("lane",),
)  # fmt: skip
REPORTS_ON_BUS = Measure("tenuto_ingress_bus_reports", "gauge", "launcher", "Of these, those that NATS holds.", ("lane",))
INGRESS_BYTES = Measure("tenuto_ingress_stream_bytes", "gauge", "launcher", "Size of the stream of reports in NATS.")
INGRESS_BYTES_MAX = Measure(
    "tenuto_ingress_stream_bytes_max", "gauge", "launcher",
    "Most bytes of that stream (TENUTO_INGRESS_STREAM_BYTES_MAX): beyond it NATS refuses reports, and agents keep "
    "them in their spools.",
)  # fmt: skip

EFFECTS_WAITING = Measure(
    "tenuto_effects_waiting",
    "gauge",
    ACTING,
    "Effects (actions outside that events call for) that are not done yet.",
    ("consumer",),
)
EFFECT_ATTEMPTS = Measure(
    "tenuto_effect_attempts_total", "counter", ACTING,
    "Attempts of effects, by outcome: done, failed (there is another one), parked.",
    ("consumer", "outcome"),
)  # fmt: skip
EFFECT_SECONDS = Measure(
    "tenuto_effect_seconds", "histogram", ACTING, "Time of one attempt of an effect.", ("consumer",), SLOW_SECONDS
)
PARKED = Measure(
    "tenuto_parked_items", "gauge", "gateway",
    "Items that a consumer could not handle, and that an operator has to look at (`tenuto parked ls`).",
    ("consumer",),
)  # fmt: skip

POOL_SLOTS = Measure(
    "tenuto_pool_slots", "gauge", "scheduler",
    "Slots of a pool by state: free, used (those being freed included), closed (out of service, or on an agent that "
    "leaves).", ("pool", "state"),
)  # fmt: skip
POOL_TRIALS = Measure(
    "tenuto_pool_trials", "gauge", "scheduler",
    "Trials by state: waiting (for slots), running (they hold slots, or run without any), leaving (their workers "
    "end).", ("pool", "state"),
)  # fmt: skip
POOL_GANGS_WANTED = Measure(
    "tenuto_pool_gangs_wanted", "gauge", "launcher",
    "Gangs that wait for nodes which do not exist yet, of a pool with a provisioner.", ("pool",),
)  # fmt: skip
AGENTS = Measure("tenuto_agents", "gauge", "launcher", "Agents that have joined and are not lost.", ("pool",))
AGENTS_LOST = Measure(
    "tenuto_agents_lost_total",
    "counter",
    "launcher",
    "Agents that were lost since the process began, without those that announced their end.",
    ("pool",),
)
NODES = Measure(
    "tenuto_nodes",
    "gauge",
    "launcher",
    "Nodes of provisioners by phase: requested, started, joined, released, failed.",
    ("pool", "phase"),
)
NODES_COST = Measure(
    "tenuto_nodes_cost_per_hour", "gauge", "launcher", "Cost per hour of these nodes, by the pool's settings.", ("pool",)
)
NODE_FAILURES = Measure(
    "tenuto_node_failures_total",
    "counter",
    "launcher",
    "Nodes that failed since the process began, by kind.",
    ("pool", "failure"),
)

REQUESTS = Measure(
    "tenuto_rest_requests_total", "counter", "gateway",
    "Requests to the REST interface by method, route (its template, `page` of the web page, `other` of none) and status.",
    ("method", "route", "status"),
)  # fmt: skip
REQUEST_SECONDS = Measure(
    "tenuto_rest_request_seconds",
    "histogram",
    "gateway",
    "Time until the answer to a request begins.",
    ("method", "route"),
    DOOR_SECONDS,
)
CONNECTIONS = Measure("tenuto_rest_connections", "gauge", "gateway", "Open connections of the REST interface.")
STREAMS = Measure("tenuto_rest_streams", "gauge", "gateway", "Clients that follow the log (server-sent events).")
NOTICES_WAITING = Measure("tenuto_webhook_notices_waiting", "gauge", "gateway", "Notices that wait for their webhook's target.")
NOTICES_PARKED = Measure(
    "tenuto_webhook_notices_given_up", "gauge", "gateway", "Notices that were given up and can be sent again."
)
WEBHOOKS_FAILING = Measure("tenuto_webhooks_failing", "gauge", "gateway", "Webhooks whose last attempt failed.")

MEASURES: tuple[Measure, ...] = tuple(value for value in globals().values() if isinstance(value, Measure))
