"""An agent that runs in the image of its trials: what it takes, and what its workers get of the image."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.config.environment import Environment
from tenuto.workers.agent import slots
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.docker import boot
from tenuto.workers.agent.runtimes.process.environment import WorkerHost, common_environment
from tenuto.workers.agent.runtimes.process.inheriting import OF_IMAGE, inherited
from tenuto.workers.agent.runtimes.process.runtime import misplaced

OWN = "example.org/vision:3"


@pytest.mark.parametrize(
    ("own", "environment", "said"),
    [
        ("", {}, ""),
        (OWN, {"image": OWN}, ""),
        (
            "",
            {"image": OWN},
            "this agent runs no images (TENUTO_DOCKER_URL is not set), and the trial needs example.org/vision:3",
        ),
        (OWN, {}, "this agent runs in the image example.org/vision:3, for trials that name it, and the trial names none"),
        (OWN, {"image": "x:1"}, "and the trial names x:1"),
        (OWN, {"image": OWN, "mounts": ["/data"]}, "mounts of environment needs a container of the trial's own"),
    ],
)
def test_a_trial_that_does_not_belong_there_is_refused(own: str, environment: dict[str, Any], said: str) -> None:
    why = misplaced(Environment.model_validate(environment), own)
    assert why.endswith(said)
    assert bool(why) == bool(said)


def test_workers_get_the_environment_of_the_image_and_no_secret_of_the_agent(tmp_path: Path) -> None:
    given = {
        "PYTHONPATH": "/tenuto/own:/opt/x",
        "MY_LIBRARY": "/opt/y",
        "TENUTO_PACKAGES": "/tenuto/p",
        "TENUTO_NATS_PASSWORD": "s",
    }
    base = inherited(given, OF_IMAGE)
    assert base == {name: given[name] for name in ("PYTHONPATH", "MY_LIBRARY", "TENUTO_PACKAGES")}
    node = AgentNode("gpus-1", tmp_path)
    for image, recorded in ((OWN, OWN), ("", None)):
        host = WorkerHost(node, (), "unix:/x", base, image=image)
        assert common_environment(host, ()).get("TENUTO_IMAGE") == recorded, "the record of each start names it"


def test_an_agent_whose_image_hides_the_gpus_offers_no_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_gpus", tuple)
    assert {slot.kind for slot in slots.find_slots(2)} == {"cpu"}
    with pytest.raises(slots.NoSlots, match="holds GPUs, but none can be seen in its image"):
        slots.find_slots(2, gpus_required=True)


def test_files_in_the_working_directory_of_the_image_take_no_modules_place(tmp_path: Path) -> None:
    """That of many images is a project, with modules of any name."""
    home, project = tmp_path / "home", tmp_path / "project"
    package = home / "own/tenuto/cli"
    package.mkdir(parents=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").touch()
    (package / "main.py").write_text("import json, os, sys\nprint(json.__name__, os.getcwd(), *sys.argv[1:])\n")
    shutil.copy(boot.__file__, home / "boot.py")
    (home / "needed.json").write_text("{}")
    project.mkdir()
    for name in ("tenuto", "json"):
        (project / f"{name}.py").write_text("raise SystemExit('a file of the project')\n")
    command = [sys.executable, "-I", str(home / "boot.py"), "agent", OWN, "gpus-1"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("json / agent run --name gpus-1\n", "")
