"""Each pool that a guide creates by its command has settings that its provisioner takes, for each type of nodes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners.aws import settings as aws
from tenuto.services.launcher.adapters.provisioners.gcp import settings as gcp
from tenuto.services.launcher.adapters.provisioners.kubernetes import settings as kubernetes
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting
from tenuto.services.launcher.adapters.provisioners.slurm import settings as slurm
from tenuto.services.launcher.adapters.provisioners.ssh import inventory as ssh

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(set(DOCS.glob("*.md")) - {DOCS / "plug-ins.md"})
"""The provisioner of that page is another package's: tests/e2e/test_plugin_nodes.py gives it the same settings."""
READERS: dict[str, tuple[Callable[..., Any], ...]] = {
    "slurm": (slurm.settings_of,),
    "ssh": (ssh.settings_of,),
    "kubernetes": (kubernetes.connection_of, kubernetes.pod_of),
    "aws": (aws.connection_of, aws.machine_of),
    "gcp": (gcp.connection_of, gcp.instance_of),
}


def by_commands() -> Iterator[tuple[str, Provisioning]]:
    for path in PAGES:
        text = path.read_text().replace("\\\n", " ")
        for number, line in enumerate(re.findall(r"^tenuto pool create (.* --provisioner .*)$", text, re.MULTILINE), 1):
            words = shlex.split(line)
            given = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--set")
            yield f"{path.name}-{number}", Provisioning(provisioner=words[words.index("--provisioner") + 1], settings=given)


def by_files() -> Iterator[tuple[str, Provisioning]]:
    for path in PAGES:
        for number, block in enumerate(
            re.findall(r"^```yaml\n(provisioner: .*?)^```", path.read_text(), re.MULTILINE | re.DOTALL), 1
        ):
            yield f"{path.name}-file-{number}", Provisioning.model_validate(yaml.safe_load(block))


POOLS = dict([*by_commands(), *by_files()])


def read(provisioning: Provisioning) -> None:
    """Raises BadSetting."""
    for reader in READERS[provisioning.provisioner]:
        for node_type in provisioning.node_types:
            reader(provisioning, *([node_type] if reader.__code__.co_argcount == 2 else []))


@pytest.mark.parametrize("name", POOLS)
def test_settings_of_a_pool_in_a_guide_are_taken(name: str) -> None:
    read(POOLS[name])


def test_all_kinds_are_shown_and_what_is_not_taken_is_found() -> None:
    assert {pool.provisioner for pool in POOLS.values()} == READERS.keys()
    with pytest.raises(BadSetting):
        read(Provisioning(provisioner="ssh", settings={"hosts": "hosts.yaml", "nowhere": "x"}))
