"""Every subject and JetStream stream name, in one place.

tenuto.log.<kind>.<key>.<type>       the log, published by the relay (stream TENUTO_LOG)
tenuto.ingress.<lane>.<agent>        reports of agents on their way to the record (stream TENUTO_INGRESS)
tenuto.committed.<lane>.<agent>      core NATS: the last report of that lane that is committed
tenuto.position.<lane>.<agent>       core NATS request: what is the last report you have committed?
tenuto.agent.heartbeat.<agent>       core NATS request from an agent to the launcher
tenuto.scheduler.queue               core NATS request to the scheduler: who waits for slots, and why?
tenuto.scheduler.past                core NATS request to the scheduler: who had slots and who waited, at a position of the log?
tenuto.scheduler.what_if             core NATS request to the scheduler: what would have happened under another policy?
tenuto.relay.bus                     core NATS request to the relay: does JetStream store what it is sent?
tenuto.launcher.backlog              core NATS request to the launcher: whose reports wait for the record?
tenuto.agent.assign.<agent>          core NATS request from the launcher to one agent
tenuto.context.<agent>               core NATS request from an agent to the gateway: a piece of a model directory

Rights to publish and subscribe are in kernel/bus_permissions.py: a subject that is missing there is closed to all.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import unquote

LOG_STREAM = "TENUTO_LOG"
INGRESS_STREAM = "TENUTO_INGRESS"
LOG_SUBJECTS = "tenuto.log.>"
INGRESS_SUBJECTS = "tenuto.ingress.>"
HEARTBEATS = "tenuto.agent.heartbeat.*"
ASSIGNMENTS = "tenuto.agent.assign.*"
CONTEXTS = "tenuto.context.*"
QUEUE = "tenuto.scheduler.queue"
PAST = "tenuto.scheduler.past"
WHAT_IF = "tenuto.scheduler.what_if"
BACKLOG = "tenuto.launcher.backlog"
NODES = "tenuto.launcher.nodes"
NODE_TOKENS = "tenuto.gateway.node_token"
BUS_STATE = "tenuto.relay.bus"
ANSWERS_ACROSS = "_R_.>"
"""Subjects at which the server itself has a question from the other account answered, each for one answer."""
INGRESS_PROBE = "tenuto.ingress.probe.relay"
"""Subject of no lane, and without subscribers; the relay only checks that its messages are stored."""

Lane = Literal["tracker", "launcher", "metrics", "logs", "overflow"]
"""A lane is one ordered sequence of reports from an agent to one receiver: `tracker` and `launcher` become events;
`metrics` and `logs` are bulk data that the tracker stores in tables; `overflow` takes, instead of `tracker`, the facts of trials
that make more of them than can be recorded at once, so that those of other trials need not wait behind them."""
LANES: tuple[Lane, ...] = ("tracker", "launcher", "metrics", "logs", "overflow")


def _token(key: str) -> str:
    """A stream key as one subject token: the characters that NATS gives a meaning are percent-encoded."""
    return "".join(f"%{ord(char):02X}" if char in ".*> \t\r\n%" else char for char in key) or "%"


def log_subject(stream: str, type_: str) -> str:
    """Subject of an event in the log. It includes the event's type, so that subscribers to one type are not sent all others."""
    kind, _, key = stream.partition("/")
    return f"tenuto.log.{kind}.{_token(key)}.{type_}"


def log_type(kind: str, type_: str) -> list[str]:
    """Filters for the events of one type with any key; the second one matches subjects without the type, which the relay
    published in earlier versions."""
    return [f"tenuto.log.{kind}.*.{type_}", f"tenuto.log.{kind}.*"]


def ingress(lane: Lane, agent_id: str) -> str:
    return f"tenuto.ingress.{lane}.{_token(agent_id)}"


def committed(lane: Lane, agent_id: str) -> str:
    return f"tenuto.committed.{lane}.{_token(agent_id)}"


def position(lane: Lane, agent_id: str) -> str:
    return f"tenuto.position.{lane}.{_token(agent_id)}"


def ingress_lane(lane: Lane) -> str:
    """Ingress subject of a lane for all agents."""
    return f"tenuto.ingress.{lane}.*"


def lane_and_agent(subject: str) -> tuple[str, str]:
    """Lane and agent id in a subject made by `ingress`."""
    lane, _, token = subject.removeprefix("tenuto.ingress.").partition(".")
    return lane, unquote(token)


def positions(lane: Lane) -> str:
    """Position subject of a lane for all agents."""
    return f"tenuto.position.{lane}.*"


def assign(agent_id: str) -> str:
    return f"tenuto.agent.assign.{_token(agent_id)}"


def heartbeat(agent_id: str) -> str:
    return f"tenuto.agent.heartbeat.{_token(agent_id)}"


def context(agent_id: str) -> str:
    return f"tenuto.context.{_token(agent_id)}"


def agent_of(subject: str) -> str:
    """Id of the agent, which is the last token of the subject. NATS lets no other agent publish there."""
    return unquote(subject.rsplit(".", 1)[1])


def inbox(user: str) -> str:
    """Prefix of the subjects at which a user of the bus receives answers; no other user may subscribe there."""
    return f"_INBOX.{_token(user)}"


def service_of(subject: str) -> str:
    """Service that answers questions at this subject of services."""
    return subject.split(".")[1]


def answers_of(inbox: str, service: str) -> str:
    """Subject at which that service answers a question. `inbox`: the one of the question; `*` in place of its last token: of
    any."""
    return f"{inbox}.{service}"
