"""The published documents say what the code does."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks annotations up by module name
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["experiment-config.schema.json", "events.schema.json", "asyncapi.json"])
def test_committed_document_is_what_the_models_give(name: str) -> None:
    module = generator()
    committed = (ROOT / "docs" / "reference" / name).read_text()
    assert committed == module.render(module.DOCUMENTS[name]()), "run `make docs` and commit the result"


def test_example_configurations_fit_the_json_schema() -> None:
    schema = json.loads((ROOT / "docs" / "reference" / "experiment-config.schema.json").read_text())
    examples = sorted(ROOT.glob("examples/*/*.yaml"))
    assert examples
    for path in examples:
        jsonschema.validate(yaml.safe_load(path.read_text()), schema)
