"""Every service has the same rooms, so that who knows one service knows all (ARCHITECTURE.md, "The rooms of a service")."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tenuto.cli.replay import cores
from tenuto.kernel.core import FoldedCore
from tenuto.kernel.folding import Folds
from tenuto.services.gateway.subjects import SUBJECTS

ROOT = Path(__file__).parents[2]
SERVICES = sorted(path.parent.name for path in ROOT.glob("services/*/app.py"))
ROOMS = {
    "state", "commands", "decide", "methods", "policies", "evolve", "explain", "core", "handlers", "effects", "adapters",
    "projections", "sql", "simulation", "app", "__init__", "__main__",
}  # fmt: skip
"""Each a file or a package."""
NEEDED = {"state", "decide", "evolve", "core", "app", "__init__", "__main__"}
AROUND = {"rest", "doors", "subjects", "views", "page", "http", "rights", "read_models", "reader"}
"""Beside the subjects of the gateway."""
SUBJECT_ROOMS = {
    "state", "commands", "decide", "evolve", "policies", "adapters", "projections", "queries", "views", "bodies", "handling",
    "routes", "door", "permissions", "examples", "subject", "__init__",
}  # fmt: skip
SUBJECT_NEEDED = {"routes", "door", "permissions", "subject", "__init__"}
MAIN_LINES_MAX = 15


def rooms(service: str) -> set[str]:
    return rooms_in(ROOT / "services" / service)


def rooms_in(folder: Path) -> set[str]:
    found = {path.stem for path in folder.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    return found | {path.name for path in folder.iterdir() if any(path.glob("*.sql"))}


def test_all_services_are_looked_at() -> None:
    assert SERVICES == ["gateway", "launcher", "scheduler", "searcher", "tracker"]


@pytest.mark.parametrize("service", SERVICES)
def test_it_has_the_rooms_of_a_service_and_no_others(service: str) -> None:
    more = AROUND | {subject.name for subject in SUBJECTS} if service == "gateway" else set()
    assert rooms(service) - ROOMS - more == set()
    assert rooms(service) >= NEEDED
    assert len((ROOT / "services" / service / "__main__.py").read_text().splitlines()) <= MAIN_LINES_MAX


@pytest.mark.parametrize("subject", [subject.name for subject in SUBJECTS])
def test_a_subject_has_the_rooms_of_a_subject_and_no_others(subject: str) -> None:
    found = rooms_in(ROOT / "services" / "gateway" / subject)
    assert found - SUBJECT_ROOMS == set()
    assert found >= SUBJECT_NEEDED


def test_the_architecture_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("## The rooms of a service") :].split("\n## ")[0]
    named = {name.removesuffix(".py").strip("/") for name in re.findall(r"`([a-z_]+(?:\.py|/))`", table)}
    assert named == ROOMS - {"__init__"}
    table = text[text.index("## Rooms of the gateway") :].split("\n## ")[0]
    assert {f"`{subject.name}`" for subject in SUBJECTS} <= set(re.findall(r"`[a-z_]+`", table))
    of_subjects = {name.removesuffix(".py").strip("/") for name in re.findall(r"`([a-z_]+(?:\.py|/))`", table)}
    assert of_subjects >= SUBJECT_ROOMS - ROOMS


@pytest.mark.parametrize("core", cores(), ids=lambda core: core.name)
def test_a_core_reads_what_it_consumes_and_emits_from_its_folds_and_the_owner_of_events(core: FoldedCore[object]) -> None:
    """So a new type of event needs its class and its folds, and no list."""
    assert isinstance(core.folds, Folds)
    assert (core.consumes, core.emits) == (core.folds.consumes, core.folds.emits)
    assert not core.consumes & core.emits
    assert core.emits
