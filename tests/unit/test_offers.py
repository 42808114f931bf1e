"""What an agent says of itself, and what the launcher takes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tenuto.kernel.settings import Settings
from tenuto.schemas.agent_limits import AGENT_SLOTS_MAX, LABELS_MAX, unacceptable
from tenuto.schemas.events.agent import Offer, Slot
from tenuto.services.launcher.handlers.agent_rate_limits import CHANGES_MAX, KNOWN_MAX, Paces
from tenuto.workers.agent.checked_settings import AgentError, check_numbers, check_offer


def slot(number: int = 0, **rest: Any) -> dict[str, Any]:
    return {"slot_id": number, "kind": "cuda", "device": "NVIDIA H100 80GB HBM3", **rest}


def offer(**changes: Any) -> Offer:
    given = {"pool": "gpus", "host": "node-7.example.org", "version": "0.1.0", "slots": [slot()], "labels": ["rack=7", "é=ü"]}
    return Offer.model_validate(given | changes)


def test_what_agents_offer_is_taken() -> None:
    several = [slot(number, uuid=f"GPU-{number}") for number in range(8)]
    for taken in (offer(), offer(slots=[]), offer(slots=several), offer(runtimes=("docker", "process"), unlimited="no limit")):
        assert unacceptable(taken) == ""


@pytest.mark.parametrize(
    "changes",
    [
        *({"pool": name} for name in ("", "a/b", "a.b", "p\r\nPING\r\n", "p\0", "p" * 64, "gpus\n")),
        *({"host": text} for text in ("h\0", "\x1b[31mred", "two\nlines", "h" * 1000)),
        {"version": "\0"},
        {"runtimes": ["x"] * 1000},
        {"runtimes": ["\0"]},
        {"unlimited": "\0"},
        {"labels": ["a=\0"]},
        {"labels": ["rack=\u202eevil"]},
        {"labels": ["a=" + "b" * 1000]},
        {"labels": [f"{number}=x" for number in range(LABELS_MAX + 1)]},
        {"slots": [slot(), slot()]},
        {"slots": [slot(-1)]},
        {"slots": [slot(10**30)]},
        {"slots": [slot(device="\x1b]0;owned\x07")]},
        {"slots": [slot(0, uuid="GPU-1"), slot(1, uuid="GPU-1")]},
        {"slots": [slot(0, uuid="\0")]},
        {"slots": [slot(number) for number in range(AGENT_SLOTS_MAX + 1)]},
    ],
)
def test_what_is_refused_is_told_without_repeating_it(changes: dict[str, Any]) -> None:
    problem = unacceptable(offer(**changes))
    assert problem
    assert problem.isprintable()
    assert len(problem) < 300


def test_an_agent_that_would_be_refused_does_not_start() -> None:
    check_offer("gpus", (Slot(slot_id=0, kind="cpu", device="cpu"),), ("rack=7",))
    with pytest.raises(AgentError, match="TENUTO_POOL"):
        check_offer("my pool", (), ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu_slots", -1), ("cpu_slots", 10**6), ("memory_bytes_per_slot", -1), ("docker_memory_bytes_per_slot", 10**30),
        ("docker_shm_bytes", -1), ("cpus_per_slot", float("nan")), ("docker_cpus_per_slot", float("inf")),
        ("docker_warm_containers_max", -1),
    ],
)  # fmt: skip
def test_numbers_that_mean_nothing_end_the_agent_with_a_sentence(name: str, value: float) -> None:
    check_numbers(Settings())
    with pytest.raises(AgentError, match=f"TENUTO_{name.upper()} must be from 0"):
        check_numbers(replace(Settings(), **{name: value}))


def test_one_agent_changes_the_record_at_a_bounded_pace_and_others_as_before() -> None:
    paces = Paces(2.0)
    taken = [paces.take("loud", 100.0 + number / 1000) for number in range(20_000)]  # for 20 s
    assert taken[:CHANGES_MAX] == [True] * CHANGES_MAX
    assert sum(taken) <= CHANGES_MAX + 10
    assert all(paces.take(f"quiet-{number}", 120.0) for number in range(2 * KNOWN_MAX))
    assert sum(paces.take("loud", 120.0) for _ in range(10)) <= 1, "nobody is forgotten who has to wait"
    assert sum(paces.take("loud", 1_000.0) for _ in range(100)) == CHANGES_MAX
