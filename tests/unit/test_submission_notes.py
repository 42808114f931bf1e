"""Notes right after a submission about nodes that come, or do not come, for it."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.cli.image_notes import note_if_no_node_runs_it
from tenuto.cli.jobs import note_if_too_large
from tenuto.schemas.config.environment import Environment
from tenuto.schemas.config.resources import Resources


class Rest:
    """A pool without agents whose nodes are of these types."""

    def __init__(self, *kinds: dict[str, Any]) -> None:
        self.settings = {
            "provisioner": "kubernetes",
            "nodes_max": 4,
            "node_types": [{"slots": 1, "images": False, **kind} for kind in kinds],
        }

    def get(self, path: str, **asked: Any) -> dict[str, Any]:
        return {"pools": []} if path == "/jobs" else {"provisioning": self.settings}


@pytest.mark.parametrize(
    ("image", "kinds", "said"),
    [
        (None, [{}], "Nodes of pool gpus come when work waits"),
        ("torch:2", [{}], "Note: nodes of pool gpus run no images of trials, so the trials wait for agents with Docker"),
        ("torch:2", [{}, {"node_images": ["torch:*"]}], "Nodes of pool gpus come when work waits"),
        ("torch:2", [{"images": True}], "Nodes of pool gpus come when work waits"),
    ],
)
def test_nodes_that_will_not_run_the_image_are_not_promised(
    image: str | None, kinds: list[dict[str, Any]], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    note_if_too_large(Rest(*kinds), Resources(pool="gpus"), image)
    assert capsys.readouterr().err.startswith(said)


class Pools:
    """Pools whose nodes may run in these images, and the runtimes of the agents of `gpus`; of `plain` nobody starts nodes."""

    def __init__(self, runtimes: tuple[str, ...] = ("process",), state: str = "joined") -> None:
        self.agents = [{"pool": "gpus", "state": state, "runtimes": runtimes}]
        self.kinds: dict[str, dict[str, Any]] = {
            "gpus": {"node_images": ["example.org/*"]},
            "docker": {"images": True},
            "open": {},
        }

    def get(self, path: str) -> Any:
        if path == "/agents":
            return {"items": self.agents}
        pool = path.split("/")[2]
        provisioner = "kubernetes" if pool in self.kinds else "static"
        return {"provisioning": {"provisioner": provisioner, "node_types": [self.kinds.get(pool, {})]}}


@pytest.mark.parametrize(
    ("environment", "pools"),
    [
        ({}, ("gpus",)),
        ({"image": "example.org/a:1"}, ("gpus",)),
        *(({"image": "x:1"}, ("gpus", other)) for other in ("docker", "open", "plain")),
    ],
)
def test_an_image_that_some_nodes_may_run_in_has_no_note(
    environment: dict[str, Any], pools: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert not note_if_no_node_runs_it(Pools(), pools, Environment.model_validate(environment))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"image": "x:1"}, "Note: nodes of pool gpus run in the images example.org/*, and not in x:1, so the trials wait for"),
        ({"image": "example.org/a:1", "pull": "always"}, "as a whole, and environment.pull is for a container of its own"),
        ({"image": "example.org/a:1", "read_only": True}, "environment.read_only is for a container of its own"),
    ],
)
def test_an_image_that_no_node_may_run_in_has_a_note_if_no_agent_has_docker(
    environment: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = Environment.model_validate(environment)
    assert note_if_no_node_runs_it(Pools(), ("gpus",), wanted)
    assert said in capsys.readouterr().err
    assert note_if_no_node_runs_it(Pools(("docker",), "lost"), ("gpus",), wanted)
    assert not note_if_no_node_runs_it(Pools(("process", "docker")), ("gpus",), wanted), "that agent takes it"
