"""Settings of an agent that have a form of their own, checked before it starts."""

from __future__ import annotations

from urllib.parse import urlsplit

from tenuto.kernel.settings import Settings
from tenuto.schemas.agent_limits import AGENT_SLOTS_MAX, unacceptable
from tenuto.schemas.events.agent import Offer, Slot

BYTES_MAX, PROCESSORS_MAX = 1 << 50, 100_000
"""Most memory and most processors of a limit: more than any machine has, and numbers that every kernel and daemon can read."""
NUMBERS_MAX = {
    "cpu_slots": AGENT_SLOTS_MAX,
    "memory_bytes_per_slot": BYTES_MAX,
    "docker_memory_bytes_per_slot": BYTES_MAX,
    "docker_shm_bytes": BYTES_MAX,
    "cpus_per_slot": PROCESSORS_MAX,
    "docker_cpus_per_slot": PROCESSORS_MAX,
    "docker_warm_containers_max": AGENT_SLOTS_MAX,
}


class AgentError(RuntimeError):
    """The agent cannot run; `str(error)` says why and what to do."""


def labels_of(text: str) -> tuple[str, ...]:
    labels = tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))
    for label in labels:
        key, equals, value = label.partition("=")
        if not (key and equals and value):
            raise AgentError(f"TENUTO_AGENT_LABELS has {label!r}, but each label must be key=value, such as rack=7,disk=fast.")
    return labels


def host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        raise AgentError(f"TENUTO_NATS_URL has {url!r}, but must be a URL such as nats://127.0.0.1:4222.") from None


def check_offer(pool: str, slots: tuple[Slot, ...], labels: tuple[str, ...]) -> None:
    """Raises AgentError for what the launcher would refuse with each heartbeat."""
    if problem := unacceptable(Offer(pool=pool, host="", slots=slots, version="", labels=labels)):
        raise AgentError(f"The launcher would not take what this agent offers: {problem}.")


def check_numbers(settings: Settings) -> None:
    """Raises AgentError."""
    for name, most in NUMBERS_MAX.items():
        value = getattr(settings, name)
        if not 0 <= value <= most:  # not a number is neither
            raise AgentError(f"TENUTO_{name.upper()} must be from 0 to {most} (found {value}).")


def required(value: str, variable: str) -> str:
    if not value:
        raise AgentError(f"{variable} is not set; give the directory.")
    return value
