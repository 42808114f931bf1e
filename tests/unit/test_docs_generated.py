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


DOCUMENTS = ["experiment-config.schema.json", "events.schema.json", "asyncapi.json", "settings.md", "experiment-config.md"]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks annotations up by module name
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
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


@pytest.mark.parametrize(
    "space", ["lr: 0.1", "sizes: [1, 2]", "o: {name: sgd, m: {type: double, minval: 0, maxval: 1}}", "f: null"]
)
def test_schema_accepts_bare_constants_and_groups(space: str) -> None:
    module = generator()
    jsonschema.validate(_config(space), module.config_schema())


@pytest.mark.parametrize("space", ["lr: {type: logg, minval: 1}", "lr: {type: int, minval: 1}", "lr: {type: const}"])
def test_schema_refuses_what_the_model_refuses(space: str) -> None:
    module = generator()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(_config(space), module.config_schema())


def _config(space: str) -> dict[str, object]:
    return {
        "name": "x",
        "entrypoint": "m:T",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "hyperparameters": yaml.safe_load(space),
    }


def test_every_setting_says_what_it_means() -> None:
    rows = generator().documented_fields(ROOT / "src/tenuto/kernel/settings.py", "Settings")
    assert len(rows) > 10
    obvious = {"nats_url", "nats_user", "nats_password", "rest_host", "rest_port", "log_level", "pool"}
    assert [name for name, _, _, meaning in rows if not meaning and name not in obvious] == []
