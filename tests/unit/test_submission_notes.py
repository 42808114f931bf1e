"""Notes right after a submission about nodes that come, or do not come, for it."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.cli.jobs import note_if_too_large
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
