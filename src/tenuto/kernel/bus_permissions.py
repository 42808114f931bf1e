"""Permissions on the bus: one table for every subject, and the part of NATS's configuration that follows from it.

Services and agents are in two accounts of the server, which see each other only through the exports below. The account of the
agents has no JetStream: the streams, and the subjects that manage them, do not exist there. That matters for replies, too. The
server answers a message that it stored at any subject its sender named; with one account for all, an agent could have that answer
stored in the log's stream.

Within its account each agent is a user of its own, whose subjects end in its id.

Readers, the automations of users, are in a third account: they hear what is published of the log, and may ask its stream for
messages by position. They make no consumers, because a client that can may have the server publish at any subject. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenuto.schemas import subjects
from tenuto.schemas.subjects import INGRESS_STREAM, LANES, LOG_STREAM, Lane

SERVICES_ACCOUNT = "TENUTO_SERVICES"
AGENTS_ACCOUNT = "TENUTO_AGENTS"
READERS_ACCOUNT = "TENUTO_READERS"
SYSTEM_ACCOUNT = "TENUTO_SYSTEM"
"""The server's own account, as `system_account` of its configuration says: there it is told to read its users again."""
KEEPER = "keeper"
"""User of the system account by which the gateway tells it."""
LOG_READS = f"$JS.API.DIRECT.GET.{LOG_STREAM}"
"""Subject that asks the log's stream for messages by their position."""
SERVICES = ("relay", "searcher", "scheduler", "launcher", "tracker", "gateway")
LANES_OF: Mapping[str, tuple[Lane, ...]] = {"launcher": ("launcher",), "tracker": ("tracker", "metrics", "logs", "overflow")}
"""Lanes that each service receives."""
ASKED: Mapping[str, tuple[str, ...]] = {"gateway": ("relay", "scheduler", "launcher"), "launcher": ("gateway",)}
"""Services that each service asks (kernel/questions.py)."""
ANSWER_AGENTS = ("launcher", "tracker", "gateway")


def agent_user(agent_id: str) -> str:
    """Name of the agent's user on the bus; its prefix keeps it apart from services."""
    return f"agent/{agent_id}"


def agent_permissions(agent_id: str) -> dict[str, Any]:
    """Permissions of an agent: it reports as itself, and receives messages addressed to it. In the account of agents the only
    questions from the other one are assignments, and a guess at the subject of their answer gains nothing: the next heartbeat
    brings them again."""
    return {
        "publish": {
            "allow": [
                *(subjects.ingress(lane, agent_id) for lane in LANES),
                *(subjects.position(lane, agent_id) for lane in LANES),
                subjects.heartbeat(agent_id),
                subjects.context(agent_id),
                subjects.ANSWERS_ACROSS,
            ]
        },
        "subscribe": {
            "allow": [
                f"{subjects.inbox(agent_user(agent_id))}.>",
                *(subjects.committed(lane, agent_id) for lane in LANES),
                subjects.assign(agent_id),
            ]
        },
        "allow_responses": True,
    }


def reader_user(name: str) -> str:
    """Name of a reader's user on the bus."""
    return f"reader/{name}"


def reader_permissions(name: str) -> dict[str, Any]:
    """Permissions of a reader of the log: its only message is the question for events."""
    return {
        "publish": {"allow": [LOG_READS]},
        "subscribe": {"allow": [f"{subjects.inbox(reader_user(name))}.>", subjects.LOG_SUBJECTS]},
    }


def keeper_permissions() -> dict[str, Any]:
    """Permissions of the keeper: to have the server read its configuration again, and nothing else."""
    return {
        "publish": {"allow": ["$SYS.REQ.SERVER.*.RELOAD"]},
        "subscribe": {"allow": [f"{subjects.inbox(KEEPER)}.>"]},
    }


def service_permissions(name: str) -> dict[str, Any]:
    """Permissions of a service. All read the log's stream by consumers; only the relay writes to it. Answers go to the sender
    of a request, also after the server has forgotten that it was asked."""
    publish, subscribe = [*_consumers_of(LOG_STREAM)], [f"{subjects.inbox(name)}.>"]
    publish += [subjects.answers_of(f"{subjects.inbox(asker)}.*", name) for asker, asked in ASKED.items() if name in asked]
    publish += [subjects.ANSWERS_ACROSS] if name in ANSWER_AGENTS else []
    match name:
        case "relay":
            publish += [subjects.LOG_SUBJECTS, subjects.INGRESS_PROBE, *_all_of(LOG_STREAM), *_all_of(INGRESS_STREAM)]
            subscribe += [subjects.BUS_STATE]
        case "launcher" | "tracker":
            publish += [*_consumers_of(INGRESS_STREAM), *_all_of(INGRESS_STREAM)]
            publish += [f"tenuto.committed.{lane}.*" for lane in LANES_OF[name]]
            subscribe += [subjects.positions(lane) for lane in LANES_OF[name]]
        case "scheduler":
            subscribe += [subjects.QUEUE, subjects.PAST, subjects.WHAT_IF]
        case "gateway":
            # The last message of the log: `log verify` compares it with the database.
            publish += [subjects.QUEUE, subjects.PAST, subjects.WHAT_IF, subjects.BUS_STATE, subjects.BACKLOG]
            publish += [subjects.NODES]
            publish += [f"$JS.API.STREAM.MSG.GET.{LOG_STREAM}"]
            subscribe += [subjects.CONTEXTS, subjects.NODE_TOKENS]
    if name == "launcher":
        publish += [subjects.ASSIGNMENTS, subjects.NODE_TOKENS]
        subscribe += [subjects.HEARTBEATS, subjects.BACKLOG, subjects.NODES]
    return {"publish": {"allow": publish}, "subscribe": {"allow": subscribe}, "allow_responses": True}


def _consumers_of(stream: str) -> list[str]:
    """Subjects for making consumers of a stream, taking messages from them and acknowledging these."""
    return [
        "$JS.API.INFO",
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.API.CONSUMER.*.{stream}",
        f"$JS.API.CONSUMER.*.{stream}.>",
        f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.*",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
        f"$JS.ACK.{stream}.>",
        f"$JS.FC.{stream}.>",
    ]


def _all_of(stream: str) -> list[str]:
    """Subjects for making, changing, clearing and removing a stream, and for reading and removing single messages of it."""
    return [f"$JS.API.STREAM.*.{stream}", f"$JS.API.STREAM.MSG.*.{stream}", f"$JS.API.DIRECT.GET.{stream}"]


def accounts(
    services: Mapping[str, str], agents: Mapping[str, str], readers: Mapping[str, str] | None = None, keeper: str = ""
) -> dict[str, Any]:
    """Value of `accounts` in NATS's configuration. `services`, `agents`, `readers`: passwords by name; `keeper`: the keeper's."""
    readers = readers or {}
    from_agents = [*(f"tenuto.ingress.{lane}.*" for lane in LANES), *map(subjects.positions, LANES)]
    from_agents += [subjects.HEARTBEATS, subjects.CONTEXTS]
    committed = [f"tenuto.committed.{lane}.*" for lane in LANES]
    keepers = [{"user": KEEPER, "password": keeper, "permissions": keeper_permissions()}] if keeper else []
    return {
        SYSTEM_ACCOUNT: {"users": keepers},
        SERVICES_ACCOUNT: {
            "jetstream": "enabled",
            "users": [
                {"user": name, "password": services[name], "permissions": service_permissions(name)} for name in sorted(services)
            ],
            "exports": [
                *({"service": subject} for subject in from_agents),
                *({"stream": subject} for subject in committed),
                {"service": LOG_READS, "response_type": "stream", "accounts": [READERS_ACCOUNT]},  # a batch is several answers
                {"stream": subjects.LOG_SUBJECTS, "accounts": [READERS_ACCOUNT]},
            ],
            "imports": [{"service": {"account": AGENTS_ACCOUNT, "subject": subjects.ASSIGNMENTS}}],
        },
        AGENTS_ACCOUNT: {
            "users": [
                {"user": agent_user(name), "password": agents[name], "permissions": agent_permissions(name)}
                for name in sorted(agents)
            ],
            "exports": [{"service": subjects.ASSIGNMENTS}],
            "imports": [
                *({"service": {"account": SERVICES_ACCOUNT, "subject": subject}} for subject in from_agents),
                *({"stream": {"account": SERVICES_ACCOUNT, "subject": subject}} for subject in committed),
            ],
        },
        READERS_ACCOUNT: {
            "users": [
                {"user": reader_user(name), "password": readers[name], "permissions": reader_permissions(name)}
                for name in sorted(readers)
            ],
            "imports": [
                {"service": {"account": SERVICES_ACCOUNT, "subject": LOG_READS}},
                {"stream": {"account": SERVICES_ACCOUNT, "subject": subjects.LOG_SUBJECTS}},
            ],
        },
    }
