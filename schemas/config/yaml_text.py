"""YAML as Tenuto reads and writes it: the core schema of YAML 1.2 (yaml.org/spec/1.2.2, section 10.3.2), at every door alike.
Merge keys (`<<`), which people use, are read besides.

PyYAML reads YAML 1.1, in which `off` is false, `010` is eight, `1:30` is ninety and `2024-01-01` is a date. In 1.2, which other
languages, the web page and JSON agree with, these are text and ten. `differences` tells where a text means something else there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

CONFIG_BYTES_MAX = 256 * 1024
"""Size limit of a configuration file. Configurations are written by hand; a larger file is something else."""
DIFFERENCES_MAX = 20
"""Most differences reported for one text: users read no more."""
_PREFIX = "tag:yaml.org,2002:"
NULL, BOOL, INT, FLOAT, STR, MERGE = (f"{_PREFIX}{name}" for name in ("null", "bool", "int", "float", "str", "merge"))
_CORE: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (NULL, re.compile(r"^(?:~|null|Null|NULL|)$"), "~nN"),
    (BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF"),
    (INT, re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), "-+0123456789"),
    (
        FLOAT,
        re.compile(r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"),
        "-+.0123456789",
    ),
    (MERGE, re.compile(r"^<<$"), "<"),
)
"""Types of plain scalars: tag, pattern, possible first characters. The first match counts."""
_NOT_CORE = tuple(f"{_PREFIX}{name}" for name in ("binary", "timestamp", "omap", "pairs", "set"))
"""Types of YAML 1.1 that no JSON has, so no record."""
Resolvers = dict[str | None, list[tuple[str, re.Pattern[str]]]]


def _core_resolvers() -> Resolvers:
    found: Resolvers = {"": [(NULL, _CORE[0][1])]}
    for tag, pattern, first in _CORE:
        for character in first:
            found.setdefault(character, []).append((tag, pattern))
    return found


_RESOLVERS = _core_resolvers()
"""Asked for each value that is read or shown, so made once."""


_HALVES = re.compile("[\\ud800-\\udbff][\\udc00-\\udfff]")


class CoreLoader(yaml.SafeLoader):
    """Reads the core schema. Values of other types, named by their tags, are errors, and so is a field that is given twice."""

    yaml_implicit_resolvers = _RESOLVERS

    def construct_int(self, node: yaml.ScalarNode) -> int:
        text = str(self.construct_scalar(node))
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text[2:] if base != 10 else text, base)

    def construct_float(self, node: yaml.ScalarNode) -> float:
        text = str(self.construct_scalar(node)).lower()
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))

    def construct_bool(self, node: yaml.ScalarNode) -> bool:
        text = str(self.construct_scalar(node))
        if not _CORE[1][1].match(text):
            raise yaml.MarkedYAMLError(problem=f"{text!r} is neither true nor false", problem_mark=node.start_mark)
        return text.lower() == "true"

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            # Merge keys (`<<`) may occur several times; all others only once.
            if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        text = super().construct_scalar(node)
        if isinstance(text, str) and not text.isascii() and _HALVES.search(text):
            # JSON writes a character beyond U+FFFF as two escapes, which YAML reads as two characters.
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return text


CoreLoader.yaml_constructors = {tag: maker for tag, maker in yaml.SafeLoader.yaml_constructors.items() if tag not in _NOT_CORE}
CoreLoader.add_constructor(INT, CoreLoader.construct_int)
CoreLoader.add_constructor(FLOAT, CoreLoader.construct_float)
CoreLoader.add_constructor(BOOL, CoreLoader.construct_bool)


def read_plain(text: str | bytes) -> Any:
    """Plain data of a text whose size is bounded already; None of an empty one. Raises yaml.YAMLError."""
    try:
        loader = CoreLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (ValueError, RecursionError) as error:  # of a number with thousands of digits, of bytes that are no text, of a nest
        raise yaml.YAMLError(str(error)) from error


class _Dumper(yaml.SafeDumper):
    """Puts into quotation marks what either version of YAML would take for something else than text."""

    yaml_implicit_resolvers = {
        first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()), *_RESOLVERS.get(first, ())]
        for first in yaml.SafeDumper.yaml_implicit_resolvers.keys() | _RESOLVERS.keys()
    }

    def ignore_aliases(self, data: Any) -> bool:
        """Always true: aliases such as `&id001` are hard to read, so repeated values are written out."""
        return True


def dump_yaml(document: Any, *, width: int | None = None) -> str:
    """Plain data (no cycles) as text that YAML 1.1 and 1.2 read alike, names in their order."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)
    return text


def plain_value(text: str) -> Any:
    """Value of a plain scalar: `64`, `1e-3`, `true` and `.inf` have the type that they look like; all else is text, unchanged."""
    stripped = text.strip()
    tag = next((tag for tag, pattern in _RESOLVERS.get(stripped[:1], ()) if pattern.match(stripped)), STR)
    return text if tag in (STR, MERGE) else CoreLoader(stripped).get_single_data()


@dataclass(frozen=True)
class YamlDifference:
    """A plain value that YAML 1.1, and so PyYAML, reads otherwise."""

    line: int
    """Line number, from 1."""
    written: str
    read: Any
    """Value in YAML 1.2, as Tenuto reads it."""
    elsewhere: str
    """Kind of value that YAML 1.1 reads, in a word or two."""

    def __str__(self) -> str:
        what = "text" if isinstance(self.read, str) else f"the number {self.read}"
        return (
            f"line {self.line}: {self.written} is {what} here (YAML 1.2); YAML 1.1 takes it for {self.elsewhere}. Write that in "
            "full if you mean it, or put it into quotation marks."
        )


_EVENTS = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Twenty times as fast where PyYAML was built with libyaml; only the plain text of values is taken from it."""
_ELSEWHERE = {
    "bool": "true or false", "int": "another number", "float": "another number", "timestamp": "a date", "null": "null"
}  # fmt: skip


def differences(text: str | bytes) -> list[YamlDifference]:
    """Values that YAML 1.1 reads differently. Empty for text that is not YAML, or longer than a configuration may be: its reader
    reports that."""
    if len(text) > CONFIG_BYTES_MAX:
        return []
    try:
        return _differences(text)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError):
        return []


def _differences(text: str | bytes) -> list[YamlDifference]:
    old = yaml.SafeLoader("")
    found = []
    try:
        for event in yaml.parse(text, Loader=_EVENTS):
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None or not event.implicit[0]:
                continue
            tag: str = old.resolve(yaml.ScalarNode, event.value, (True, False))  # type: ignore[no-untyped-call]
            word = tag.removeprefix(_PREFIX)
            if word not in _ELSEWHERE or event.value == "":
                continue
            read = plain_value(event.value)
            if isinstance(read, str) or (word == "int" and read != old.construct_yaml_int(yaml.ScalarNode(INT, event.value))):
                assert event.start_mark is not None, "that of a text that is read"
                found.append(YamlDifference(event.start_mark.line + 1, event.value, read, _ELSEWHERE[word]))
            if len(found) == DIFFERENCES_MAX:
                break
    finally:
        old.dispose()
    return found
