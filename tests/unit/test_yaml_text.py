"""One reading of YAML: that of version 1.2, at every door, and what is shown can be read again with the same meaning."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tenuto.cli import automation_rules, nodes
from tenuto.cli.errors import CliError
from tenuto.cli.merging import read_text
from tenuto.cli.overrides import read_overrides, with_overrides
from tenuto.client.errors import ClientError
from tenuto.client.submitting import config_text
from tenuto.kernel.storage.store import StoreError
from tenuto.kernel.storage.stores import read_stores, write_stores
from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.config.reading import load_yaml, parse_config
from tenuto.schemas.config.yaml_text import DIFFERENCES_MAX, differences, dump_yaml, plain_value
from tests.support.import_graph import modules

CORE: dict[str, Any] = {
    "off": "off", "yes": "yes", "y": "y", "True": True, "FALSE": False, "tRUE": "tRUE", "~": None, "Null": None, "nULL": "nULL",
    "010": 10, "0o10": 8, "0x1F": 31, "+12": 12, "-0": 0, "0b11": "0b11", "1_000": "1_000", "1:30": "1:30", "-1:30": "-1:30",
    "1e3": 1000.0, "1e-4": 1e-4, "1.": 1.0, ".5": 0.5, "+.5e+1": 5.0, "-.INF": -math.inf, ".inf": math.inf, "e3": "e3",
    ".": ".", "-": "-", "+": "+", "..5": "..5", "1e": "1e", "NaN": "NaN", "Infinity": "Infinity", "=": "=",
    "2024-01-01": "2024-01-01",
    "2024-01-01T10:00:00Z": "2024-01-01T10:00:00Z", "12e03": 12000.0, "<": "<",
}  # fmt: skip
"""What plain scalars stand for (yaml.org/spec/1.2.2, section 10.3.2)."""
HEAD = "name: n\nentrypoint: a:B\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\n"


@pytest.mark.parametrize(("written", "value"), CORE.items())
def test_scalars_are_those_of_the_core_schema(written: str, value: Any) -> None:
    if written != "-":
        assert load_yaml(f"a: {written}") == {"a": value}
        assert type(load_yaml(f"a: {written}")["a"]) is type(value)
    assert plain_value(written) == value
    assert read_overrides([f"a={written}"]) == {"a": value} if value not in (math.inf, -math.inf) else True


def test_names_are_scalars_too_and_merge_keys_stay() -> None:
    assert load_yaml("on: 1\n010: 2") == {"on": 1, 10: 2}
    assert load_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}") == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}


@pytest.mark.parametrize(
    "tag", ["!!binary aGk=", "!!timestamp 2024-01-01", "!!set {a}", "!!omap [a: 1]", "!!bool yes", "!!int 1:30"]
)
def test_types_that_no_record_has_are_refused_in_a_sentence(tag: str) -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_yaml(f"a: {tag}")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(sorted(CORE)) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(sorted(CORE)) | st.text("aé: #-", max_size=6), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_what_is_written_is_read_again_by_both_versions(value: Any) -> None:
    text = dump_yaml({"value": value})
    assert load_yaml(text) == {"value": value}
    assert yaml.safe_load(text) == {"value": value}
    assert differences(text) == []


def test_what_means_something_else_in_the_older_version_is_told_by_line() -> None:
    told = differences("a: off\nb: 010\nc: 'off'\nd: 0o10\non: [1:30, 2024-01-01, 1_000]\ne: 1e3\nf: 10\ng: !!str off\nh:\n")
    assert [(item.line, item.written) for item in told] == [
        (1, "off"), (2, "010"), (5, "on"), (5, "1:30"), (5, "2024-01-01"), (5, "1_000")
    ]  # fmt: skip
    assert str(told[0]).startswith("line 1: off is text here (YAML 1.2); YAML 1.1 takes it for true or false.")
    assert str(told[1]).startswith("line 2: 010 is the number 10 here")
    assert len(differences("- no\n" * 1000)) == DIFFERENCES_MAX
    assert differences("a: [") == differences(b"\xff") == []


def test_the_command_line_says_so_where_it_reads_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("a: 1\nb: off\n")
    assert read_text(file, {}) == file.read_bytes()
    assert f"{file}, line 2: off is text here" in capsys.readouterr().err
    read_overrides([], file)
    assert f"{file}, line 2: off is text here" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="line 2: off is text here"):
        config_text(file)


@pytest.mark.parametrize(
    "text", ["Answer: yes", "a #b", "- item", "&a", "*a", "|", "? x", "%", "@x", "a: b: c", "say: {x}", " x "]
)
def test_text_on_the_command_line_stays_text(text: str) -> None:
    assert read_overrides([f"hyperparameters.prompt={text}"]) == {"hyperparameters": {"prompt": text}}


def test_a_date_on_the_command_line_reaches_the_cluster_as_text() -> None:
    changed = with_overrides(HEAD.encode(), read_overrides(["hparams.since=2024-01-01", "hparams.of={a: [off, '1e3']}"]))
    assert load_yaml(changed)["hyperparameters"] == {"since": "2024-01-01", "of": {"a": ["off", "1e3"]}}


@pytest.mark.parametrize("number", [".inf", "-.inf", ".nan"])
def test_a_number_that_no_record_can_hold_is_refused_by_name_at_every_door(number: str) -> None:
    sentence = "hyperparameters.clip:? must be a finite number"
    with pytest.raises(ConfigError, match=sentence):
        parse_config(f"{HEAD}hyperparameters: {{clip: {number}}}")
    with pytest.raises(ConfigError, match=sentence):
        parse_config(with_overrides(f"{HEAD}hyperparameters: {{clip: {number}}}".encode(), {"name": "other"}))
    with pytest.raises(CliError, match=sentence):
        read_overrides([f"hparams.clip={number}"])
    with pytest.raises(ClientError, match="finite numbers"):
        config_text({"hyperparameters": {"clip": float(number.replace(".", ""))}})


def test_a_configuration_on_record_comes_back_with_the_same_meaning() -> None:
    config = json.loads(
        parse_config(f"{HEAD}hyperparameters: {{a: 'off', b: '010', c: '1e3', d: '2024-01-01', e: 1e-5}}").to_json()
    )
    assert json.loads(parse_config(dump_yaml(config)).to_json()) == config


def test_one_module_reads_and_writes_yaml() -> None:
    """All else of the product goes through it; the sentences on errors name PyYAML's classes of errors only."""
    found = {
        f"{name}: {ast.unparse(node)}"
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "yaml" and not node.attr.endswith(("Error", "Node"))
    }
    there = "tenuto.schemas.config.yaml_text: "
    assert {item for item in found if not item.startswith(there)} == set()
    assert f"{there}yaml.SafeLoader" in found
    texts = [path.read_text() for path in modules().values()]
    assert not [text for text in texts if "from yaml import" in text or "import yaml as" in text]


FILES = {
    "rules": ("automation:\n  - {on: metric, metric: loss, above: 1, do: webhook, webhook: 2024-01-01}\n", "2024-01-01"),
    "pool": ("provisioner: ssh\nsettings: {key: 1:30}\n", "1:30"),
}


@pytest.mark.parametrize("kind", FILES)
def test_other_files_of_the_command_line_are_read_alike(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file.yaml"
    read: Any = automation_rules._read if kind == "rules" else nodes._read
    file.write_text(FILES[kind][0])
    found = read(file)
    assert (found[0]["webhook"] if kind == "rules" else found["settings"]["key"]) == FILES[kind][1]
    assert kind == "pool" or found[0]["on"] == "metric"
    assert f"{FILES[kind][1]} is text here" in capsys.readouterr().err
    for text, said in (("a: 1\na: 2\n", "line 2, column 1: .*'a' is given twice"), ("a: .inf", "must be a finite number"),
                       ("a: [", "is refused"), ("", "list of rules|YAML mapping")):  # fmt: skip
        file.write_text(text)
        with pytest.raises(CliError, match=said):
            read(file)
    with pytest.raises(CliError, match="Cannot read"):
        read(tmp_path / "none.yaml")


def test_declarations_of_stores_are_read_alike_and_come_back_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "stores.yaml"
    file.write_text("off: {type: directory, path: /data/off}\n'010': {type: directory, path: /data/b}\n")
    declared = read_stores(file)
    assert sorted(declared) == ["010", "off"]
    write_stores(file, {**declared, "1e3": declared["off"]})
    assert sorted(read_stores(file)) == ["010", "1e3", "off"]
    for text in ("a: 1\na: 2\n", f"a: {'9' * 5000}", "[" * 5000):
        file.write_text(text)
        with pytest.raises(StoreError, match="the stores' declarations cannot be read"):
            read_stores(file)
