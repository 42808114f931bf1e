"""Life of the join token of a node: as short as the way of its provider allows."""

from __future__ import annotations

import pytest

from tenuto.schemas.node_tokens import NODE_TOKEN_SECONDS_MAX
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import open_provisioner
from tenuto.services.launcher.effects.nodes import token_seconds


@pytest.mark.parametrize(
    ("provisioner", "settings", "seconds"),
    [
        ("aws", {}, 1_800), ("aws", {"install": "tenuto"}, 1_800), ("gcp", {"install": "tenuto"}, 1_800), ("ssh", {}, 1_800),
        ("ssh", {"install": "tenuto"}, NODE_TOKEN_SECONDS_MAX), ("slurm", {}, NODE_TOKEN_SECONDS_MAX),
        ("kubernetes", {}, NODE_TOKEN_SECONDS_MAX),
    ],
)  # fmt: skip
def test_a_token_lives_no_longer_than_a_node_may_wait(provisioner: str, settings: dict[str, str], seconds: float) -> None:
    """Clouds keep boot scripts, with their tokens, where others may read them."""
    made = open_provisioner("cluster", "gpus", Provisioning(provisioner=provisioner, settings=settings))
    assert token_seconds(made, 900.0) == seconds
