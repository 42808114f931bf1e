"""Each configuration that the documents show is one: read as a user's is, with what it leaves out. So is what they show of pools
and lists of hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenuto.schemas.config.reading import parse_config
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners.ssh.inventory import Inventory

DOCS = Path(__file__).parents[2] / "docs"
LEFT_OUT: dict[str, Any] = {
    "entrypoint": "model_def:Trial",
    "searcher": {"name": "random", "metric": "loss", "max_trials": 4, "max_length": {"epochs": 8}},
    "hyperparameters": {},
}


def shown() -> Iterator[tuple[str, str]]:
    for path in sorted(DOCS.glob("*.md")):
        for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL), 1):
            lines = block.splitlines()
            if len(lines) > 1 and all(line.startswith("searcher:") for line in lines):  # one of many in each line
                yield from ((f"{path.name}-{number}-{at}", line) for at, line in enumerate(lines, 1))
            else:
                yield f"{path.name}-{number}", re.sub(r"^  \.\.\.\n", "", block, flags=re.MULTILINE)


SHOWN = dict(shown())


@pytest.mark.parametrize("name", SHOWN)
def test_a_configuration_of_a_document_is_one(name: str) -> None:
    document = yaml.safe_load(SHOWN[name])
    assert isinstance(document, dict)
    if "apiVersion" in document or {"scrape_configs", "groups"} & document.keys():  # Kubernetes's own, and Prometheus's
        return
    if "hosts" in document:
        Inventory.model_validate(document)
        return
    if "node_types" in document:
        Provisioning.model_validate(document)
        return
    searcher = document.get("searcher", {})
    usual = {} if "name" in searcher and "metric" in searcher else LEFT_OUT["searcher"]
    whole = {**LEFT_OUT, **document, "searcher": {**usual, **searcher} or LEFT_OUT["searcher"]}
    whole.pop("template", None)  # a cluster keeps it
    parse_config(yaml.safe_dump(whole).encode())


def test_there_are_some() -> None:
    assert len(SHOWN) > 20
