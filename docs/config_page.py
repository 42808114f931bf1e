"""The page on the experiment configuration: every field of its JSON Schema, with type, default and meaning."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

from tenuto.schemas.base import Model
from tenuto.schemas.config import ExperimentConfig, Length
from tenuto.schemas.config.experiment import NO_LENGTH


def config_schema() -> dict[str, Any]:
    schema = ExperimentConfig.model_json_schema()
    # A bare value stands for a constant, and a mapping without `type` is a group: the model's validator reads both, which
    # pydantic's schema cannot know.
    space = schema["$defs"]["Hyperparameter"]["oneOf"]
    group = next(kind for kind in space if "additionalProperties" in kind)
    group["not"] = {"required": ["type"], "properties": {"type": {"type": "string"}}}
    space.append({"type": ["string", "number", "boolean", "null", "array"]})
    schema["$defs"]["ConstHyperparameter"]["required"] = ["type", "val"]
    entrypoint = schema["properties"]["entrypoint"]
    del entrypoint["type"]
    for period in ("min_checkpoint_period", "min_validation_period"):
        schema["properties"][period]["anyOf"].append({"enum": [dict(value) for value in NO_LENGTH]})
    entrypoint["anyOf"] = [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def documented_fields(path: Path, class_name: str) -> list[tuple[str, str, str, str]]:
    """(name, type, default, meaning) of each field of a class: the meaning is the string under the field in the source."""
    tree = ast.parse(path.read_text())
    (cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    found: list[tuple[str, str, str, str]] = []
    for node, after in zip(cls.body, [*cls.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.target.id.startswith("_"):
            continue
        meaning = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            meaning = " ".join(str(after.value.value).split())
        default = "required" if node.value is None else ast.unparse(node.value)
        found.append((node.target.id, ast.unparse(node.annotation), default, meaning))
    return found


def table(rows: list[tuple[str, str, str, str]]) -> str:
    lines = ["| name | type | default | meaning |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{n}`", t, d, m)) + " |" for n, t, d, m in rows]
    return "\n".join(lines) + "\n"


LENGTH = "`{batches: N}` or `{epochs: N}`"
KINDS = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}
UNIONS = {"searcher": "name", "hyperparameters": "type", "automation": "on"}
"""Sections of which there are several kinds, and the field that tells them apart."""


class _ConfigPage:
    """Every field of the configuration's JSON Schema, section by section, with the meanings that stand in the source."""

    def __init__(self) -> None:
        self._schema = config_schema()
        self._definitions: dict[str, dict[str, Any]] = self._schema["$defs"]
        self._models = {model.__name__: model for model in _models_below(ExperimentConfig)}
        self._parts: list[str] = []
        self._done: set[str] = {"Length"}

    def text(self) -> str:
        self._section("Experiment", ExperimentConfig.__name__, "")
        self._part("Lengths and periods", "", self._rows("Length"))
        head = "# Experiment configuration\n\nStrict: an unknown or wrong field is refused with its path.\n"
        return "\n".join([head, *self._parts])

    def _definition(self, name: str) -> dict[str, Any]:
        return self._schema if name == ExperimentConfig.__name__ else self._definitions[name]

    def _part(self, heading: str, introduction: str, rows: list[tuple[str, str, str, str]]) -> None:
        text = f"{introduction}\n\n" if introduction else ""
        self._parts.append(f"## {heading}\n\n{text}" + (table(rows) if rows else "No other fields.\n"))

    def _section(self, heading: str, name: str, path: str) -> None:
        """A model's fields, then the sections of the models in them."""
        self._part(heading, "" if not path else _introduction(self._models[name]), self._rows(name))
        for field, value in self._definition(name)["properties"].items():
            below = f"{path}.{field}" if path else field
            named = [item for item in _references(value, self._definitions) if item not in self._done]
            self._done.update(named)
            if field in UNIONS and not path:
                self._union(below, UNIONS[field], named)
                continue
            for item in named:
                self._section(below, item, below)

    def _union(self, path: str, tag: str, names: list[str]) -> None:
        """What all kinds have, once; then what each has of its own."""
        rows = {name: self._rows(name) for name in names}
        common = [row for row in rows[names[0]] if all(row in others for others in rows.values())]
        if common:
            self._part(f"{path}, all kinds", "", common)
        nested: list[str] = []
        for name in names:
            properties = self._definitions[name]["properties"]
            kind = properties[tag].get("const")
            own = [row for row in rows[name] if row not in common and row[0] != tag]
            if kind is None:  # of any name
                self._part(path, _introduction(self._models[name]), rows[name])
            else:
                self._part(f"{path}: {kind}", f"`{tag}: {kind}`. {_introduction(self._models[name])}".strip(), own)
            for value in properties.values():
                nested += [item for item in _references(value, self._definitions) if item not in (*self._done, *nested, *names)]
        self._done.update(nested)
        for name in nested:
            field = next(
                field
                for owner in names
                for field, value in self._definitions[owner]["properties"].items()
                if name in _references(value, self._definitions)
            )
            self._section(f"{path}.{field}", name, f"{path}.{field}")

    def _rows(self, name: str) -> list[tuple[str, str, str, str]]:
        definition, model = self._definition(name), self._models[name]
        meanings = _meanings(model)
        rows = []
        for field, value in definition["properties"].items():
            required = field in definition.get("required", ()) and "default" not in value
            default = "required" if required else _default(model.model_fields[field].get_default(call_default_factory=True))
            rows.append((field, self._kind(value), default, meanings.get(field, "")))
        return rows

    def _kind(self, value: dict[str, Any]) -> str:
        if "const" in value:
            return f"`{value['const']}`"
        if "enum" in value:
            shown = [str(item).replace("'", "") if isinstance(item, dict) else item for item in value["enum"]]
            return ", ".join(f"`{item}`" for item in shown)
        if "$ref" in value:
            name = value["$ref"].rpartition("/")[2]
            target = self._definitions[name]
            if name == "Length":
                return LENGTH
            return (
                "mapping (below)"
                if "properties" in target
                else "search space"
                if name == "Hyperparameter"
                else self._kind(target)
            )
        members = value.get("anyOf") or value.get("oneOf")
        if members:
            return " or ".join(dict.fromkeys(self._kind(item) for item in members))
        if value.get("type") == "array":
            kind = f"list of {self._kind(value['items'])}" if value.get("items") else "list"
        elif value.get("type") == "object":
            inner = value.get("additionalProperties")
            kind = f"mapping to {self._kind(inner)}" if isinstance(inner, dict) and inner else "mapping"
        else:
            kind = KINDS.get(str(value.get("type")), "anything")
        return kind + _bounds(value)


def _models_below(model: type[Model]) -> list[type[Model]]:
    """The model and all that its fields hold."""
    found: dict[str, type[Model]] = {}
    waiting: list[Any] = [model]
    while waiting:
        item = waiting.pop()
        if isinstance(item, type) and issubclass(item, Model):
            if item.__name__ not in found:
                found[item.__name__] = item
                waiting += [field.annotation for field in item.model_fields.values()]
        else:
            waiting += [*getattr(item, "__args__", ()), *([item.__value__] if hasattr(item, "__value__") else [])]
            waiting += [part for part in getattr(item, "__metadata__", ()) if isinstance(part, type)]
    return list(found.values())


def _references(value: Any, definitions: dict[str, Any], seen: frozenset[str] = frozenset()) -> list[str]:
    """Definitions with fields that the value may hold."""
    if isinstance(value, list):
        return [name for item in value for name in _references(item, definitions, seen)]
    if not isinstance(value, dict):
        return []
    found: list[str] = []
    for key, item in value.items():
        if key == "$ref":
            name = item.rpartition("/")[2]
            if "properties" in definitions[name]:
                found.append(name)
            elif name not in seen:
                found += _references(definitions[name], definitions, seen | {name})
        elif key not in ("default", "discriminator"):
            found += _references(item, definitions, seen)
    return list(dict.fromkeys(found))


def _meanings(model: type[Model]) -> dict[str, str]:
    """The strings under the fields, of the model and of those that it is derived from."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, Model) and kind is not Model:
            path = inspect.getsourcefile(kind)
            assert path is not None
            found |= {name: meaning for name, _, _, meaning in documented_fields(Path(path), kind.__name__) if meaning}
    return found


def _introduction(model: type[Model]) -> str:
    return " ".join((model.__dict__.get("__doc__") or "").split())


def _default(value: Any) -> str:
    if isinstance(value, Length):
        return f"`{{{value.unit}: {value.value}}}`"
    if isinstance(value, Model):
        return "its fields' defaults"
    return "none" if value is None else f"`{json.dumps(value, default=list)}`"


def _bounds(value: dict[str, Any]) -> str:
    """Such as ` from 1 to 99`, or ` of 1 to 256 characters`."""
    for low, high, unit in (
        ("minLength", "maxLength", "characters"),
        ("minItems", "maxItems", "items"),
        ("minProperties", "", "entries"),
    ):
        least, most = value.get(low), value.get(high)
        if most is not None:
            return f" of at most {_number(most)} {unit}" if least is None else f" of {_number(least)} to {_number(most)} {unit}"
        if least is not None:
            return " that is not empty" if least == 1 else f" of at least {_number(least)} {unit}"
    if "minimum" in value and "maximum" in value:
        return f" from {_number(value['minimum'])} to {_number(value['maximum'])}"
    words = (("minimum", "at least"), ("exclusiveMinimum", "above"), ("maximum", "at most"), ("exclusiveMaximum", "below"))
    found = [f"{word} {_number(value[key])}" for key, word in words if key in value]
    return f", {' and '.join(found)}" if found else ""


def _number(value: float) -> str:
    """Whole powers of two are what computers count with: 2^63."""
    if isinstance(value, int) and value > 2**53 and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def config_page() -> str:
    return _ConfigPage().text()
