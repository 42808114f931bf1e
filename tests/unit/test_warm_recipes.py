"""Which runs may be forked in the same warm container, and which start cold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenuto.kernel.account import Account
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.events.pool import AgentSlots
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.docker.description import ContainerFacts, ContainerLimits, temporary
from tenuto.workers.agent.runtimes.docker.images import Image
from tenuto.workers.agent.runtimes.docker.mounts import Bind
from tenuto.workers.agent.runtimes.docker.warm_container import Recipe
from tenuto.workers.agent.runtimes.docker.warm_description import forked_job, own_binds, recipe_of
from tenuto.workers.agent.runtimes.docker.warm_files import PLACE, apart
from tenuto.workers.agent.runtimes.files import RunFiles
from tenuto.workers.agent.runtimes.runtime import Work
from tests.support.control_plane import AGENT, make_assignment, make_config

DIRECTORY = Path("/agent")
SLOTS = tuple(Slot(slot_id=number, kind="cuda", device="H100", uuid=f"GPU-{number}") for number in range(2))
FACTS = ContainerFacts(
    AgentNode(AGENT, DIRECTORY),
    SLOTS,
    Account("worker", 7, 7),
    7,
    7,
    "none",
    ContainerLimits(),
    Path("/agent/packages/1"),
    "unix:/s",
    {},
)
FIXED = (Bind("/agent/door", "/agent/door"), Bind("/agent/packages/1", "/tenuto"))


def work_of(trial: int = 1, *, slots: tuple[int, ...] = (0,), **environment: Any) -> Work:
    config = make_config(environment={"image": "image:1", **environment})
    return Work(make_assignment("0" * 64, trial=trial, slots=slots, config=config), DIRECTORY / "contexts" / ("0" * 64), "token")


def own(work: Work) -> list[Bind]:
    run, checkpoints = f"/agent/containers/{work.allocation_id}", f"/shared/checkpoints/1/{work.assignment.trial_id}"
    return [
        Bind(str(work.context), str(work.context)),
        Bind(run, run, writable=True),
        Bind(f"{run}/tmp", temporary(work.allocation_id), writable=True),
        Bind(checkpoints, checkpoints, writable=True),
    ]


def recipe(work: Work, facts: ContainerFacts = FACTS, fixed: tuple[Bind, ...] = FIXED, image: str = "sha256:1") -> Recipe | None:
    files = RunFiles(DIRECTORY / "containers" / work.allocation_id)
    return recipe_of(facts, work, Image("image:1", image, "image@1"), own(work), fixed, files, "torch")


def key(work: Work, **changes: Any) -> str:
    made = recipe(work, **changes)
    assert made is not None
    return made.key


def test_trials_that_differ_in_what_is_their_own_share_a_recipe() -> None:
    first = recipe(work_of(1))
    assert first is not None
    assert first.key == key(work_of(2))
    assert first.places == ("/agent/containers", "/agent/contexts", "/shared/checkpoints")
    told = first.line + json.dumps(first.description).encode()
    assert b"1-1-1" not in told
    assert b'"token"' not in told


@pytest.mark.parametrize(
    ("work", "changes"),
    [
        (work_of(slots=(1,)), {}),
        (work_of(slots=(0, 1)), {}),
        (work_of(variables={"OMP_NUM_THREADS": "3"}), {}),
        (work_of(), {"image": "sha256:2"}),
        (work_of(), {"fixed": (*FIXED, Bind("/data", "/data"))}),
        (work_of(), {"facts": replace(FACTS, limits=ContainerLimits(8 << 30))}),
        (work_of(), {"facts": replace(FACTS, uid=8)}),
    ],
)
def test_what_decides_about_the_container_decides_about_the_recipe(work: Work, changes: dict[str, Any]) -> None:
    assert key(work, **changes) != key(work_of())


@pytest.mark.parametrize(
    ("work", "changes"),
    [
        (replace(work_of(), secrets={"API_KEY": "value"}), {}),
        (work_of(), {"facts": replace(FACTS, limits=ContainerLimits(1 << 30))}),
        (work_of(), {"fixed": (*FIXED, Bind("/shared", "/shared"))}),
        (work_of(), {"fixed": (*FIXED, Bind("/scratch", "/tmp"))}),
    ],
)
def test_some_runs_start_cold(work: Work, changes: dict[str, Any]) -> None:
    assert recipe(work, **changes) is None


def test_gangs_over_several_agents_start_cold() -> None:
    parts = (AgentSlots(agent_id=AGENT, slot_ids=(0,)), AgentSlots(agent_id="node-2", slot_ids=(0,)))
    work = work_of()
    assert recipe(replace(work, assignment=work.assignment.model_copy(update={"slots": parts}))) is None


def test_a_run_is_told_only_what_is_its_own() -> None:
    work = work_of(variables={"PYTHONPATH": "/mine"})
    job = forked_job(FACTS, work, Image("image:1", "sha256:1", "image@1"), RunFiles(DIRECTORY / "containers" / "1-1-1"))
    assert job["environment"]["TENUTO_ALLOCATION_ID"] == "1-1-1"
    assert job["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-0"
    assert "PYTHONPATH" not in job["environment"], "the container's has our package before it"
    assert [bind.target for bind in own_binds(work, own(work))][2] == PLACE


@pytest.mark.parametrize(
    ("places", "others", "expected"),
    [
        (["/a/b", "/a/c"], ["/d"], True),
        (["/a/b", "/a/bc"], ["/a/bcd"], True),
        (["/a", "/a/b"], [], False),
        (["/a/b"], ["/a"], False),
        (["/a"], ["/a/b"], False),
        (["/a"], ["/a"], False),
    ],
)
def test_places_are_apart(places: list[str], others: list[str], expected: bool) -> None:
    assert apart(places, others) is expected
