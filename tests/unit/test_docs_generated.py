"""The published documents say what the code does."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pydantic
import pytest
import yaml

from tenuto.schemas.config import ExperimentConfig

ROOT = Path(__file__).parents[2]


DOCUMENTS = [
    "experiment-config.schema.json",
    "events.schema.json",
    "asyncapi.json",
    "settings.md",
    "metrics.md",
    "experiment-config.md",
    "python.md",
]


def generator() -> ModuleType:
    if str(ROOT / "docs") not in sys.path:
        sys.path.append(str(ROOT / "docs"))  # where its neighbours are
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks annotations up by module name
    spec.loader.exec_module(module)
    return module


@functools.cache
def validator() -> Any:
    """Of configurations, by the schema that the models give. The schema itself is checked once, which takes longer than all that
    is checked by it."""
    schema = generator().config_schema()
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_committed_document_is_what_the_models_give(name: str) -> None:
    module = generator()
    committed = (ROOT / "docs" / "reference" / name).read_text()
    assert committed == module.render(module.DOCUMENTS[name]()), "run `make docs` and commit the result"


def test_example_configurations_fit_the_json_schema() -> None:
    schema = json.loads((ROOT / "docs" / "reference" / "experiment-config.schema.json").read_text())
    examples = sorted(set(ROOT.glob("examples/*/*.yaml")) - set(ROOT.glob("examples/pipelines/*.yaml")))  # those are of others
    assert examples
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    for path in examples:
        kind(schema).validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    "space", ["lr: 0.1", "sizes: [1, 2]", "o: {name: sgd, m: {type: double, minval: 0, maxval: 1}}", "f: null"]
)
def test_schema_accepts_bare_constants_and_groups(space: str) -> None:
    validator().validate(_config(space))


@pytest.mark.parametrize("space", ["lr: {type: logg, minval: 1}", "lr: {type: int, minval: 1}", "lr: {type: const}"])
def test_schema_refuses_what_the_model_refuses(space: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(_config(space))


@pytest.mark.parametrize("period", ["min_checkpoint_period", "min_validation_period", "log_period"])
@pytest.mark.parametrize("value", [{"batches": 0}, {"epochs": 0}, {"batches": 1}, {"batches": -1}, {"records": 0}, None])
def test_schema_and_model_take_the_same_periods(period: str, value: object) -> None:
    config = {**_config("lr: 0.1"), period: value}

    def takes(check: Callable[[object], object], problem: type[Exception]) -> bool:
        try:
            check(config)
        except problem:
            return False
        return True

    by_model = takes(ExperimentConfig.model_validate, pydantic.ValidationError)
    assert takes(validator().validate, jsonschema.ValidationError) is by_model


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


TAGS = ("name", "type", "on")
"""Fields that tell the kinds of a section apart."""
OBVIOUS = {"type"}
"""Fields whose names say all."""


def config_sections() -> dict[str, list[list[str]]]:
    """Of the page on the configuration: heading to the cells of its rows."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in (ROOT / "docs" / "reference" / "experiment-config.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
            found[heading] = []
        elif line.startswith("| `"):
            found[heading].append([cell.replace("\\|", "|") for cell in re.split(r"(?<!\\) \| ", line[2:-2])])
    return found


def schema_paths(schema: dict[str, Any], definitions: dict[str, Any], path: str = "") -> Iterator[tuple[str, str, bool]]:
    """(section, field, required) of every field that can be written, wherever the schema has it."""
    for field, value in schema.get("properties", {}).items():
        yield path, field, field in schema.get("required", ()) and "default" not in value
        below = f"{path.partition(':')[0]}.{field}" if path else field
        for name in re.findall(r"#/\$defs/(\w+)", json.dumps(value)):
            yield from _below(name, definitions, below, frozenset())


def _below(name: str, definitions: dict[str, Any], path: str, seen: frozenset[str]) -> Iterator[tuple[str, str, bool]]:
    target = definitions[name]
    if "properties" not in target:
        for inner in set(re.findall(r"#/\$defs/(\w+)", json.dumps(target))) - seen:
            yield from _below(inner, definitions, path, seen | {name})
        return
    tag = next((value["const"] for field, value in target["properties"].items() if "const" in value and field in TAGS), "")
    section = "Lengths and periods" if name == "Length" else f"{path}: {tag}" if tag else path
    yield from schema_paths(target, definitions, section)


def test_the_page_has_every_field_of_the_schema_with_its_default_and_meaning() -> None:
    schema = json.loads((ROOT / "docs" / "reference" / "experiment-config.schema.json").read_text())
    sections = config_sections()
    paths = set(schema_paths(schema, schema["$defs"]))
    assert len(paths) > 150
    for section, field, required in paths:
        shared = f"{section.partition(':')[0]}, all kinds"
        rows = sections[section or "Experiment"] + (sections.get(shared, []) if ":" in section else [])
        found = [row for row in rows if row[0] == f"`{field}`"]
        if not found and field in TAGS and ":" in section:
            continue  # it is the section's heading
        [(_, kind, default, meaning)] = found
        where = f"{section}.{field}"
        assert kind, where
        assert (default == "required") is required, where
        assert "Field(" not in kind + default, where
        assert meaning or field in OBVIOUS, f"{where} has no docstring that says what it means"


def test_every_search_method_and_section_has_a_heading() -> None:
    sections = set(config_sections())
    methods = {
        "single",
        "random",
        "sobol",
        "grid",
        "sha",
        "hyperband",
        "asha",
        "adaptive_asha",
        "bohb",
        "pbt",
        "tpe",
        "gp",
        "cmaes",
    }
    assert {f"searcher: {method}" for method in methods | {"nsga2", "custom"}} <= sections
    assert {
        "distributed",
        "log_policies",
        "resources.slots_per_trial",
        "searcher.objectives",
        "hyperparameters: const",
    } <= sections
