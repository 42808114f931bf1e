"""Reads a configuration together with what stands under it (`policies/layers.py`), and judges what a template may say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic import ValidationError

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.errors import ConfigError, Problem, explain
from tenuto.schemas.config.layers import (
    BUILT_IN,
    COMMAND_LINE,
    TEMPLATE,
    Layer,
    Path,
    Value,
    canonical,
    combined,
    dotted,
    leaves,
    named,
)
from tenuto.schemas.config.reading import validated
from tenuto.schemas.config.submission import unprintable_name
from tenuto.schemas.text import unacceptable

BYTES_MAX = 64 * 1024
"""Size limit of a template as JSON: a quarter of a configuration's."""
PATHS_CHARACTERS_MAX = 32 * 1024
"""Most characters of the listed paths that one layer gave, in the record of an experiment: with long names they could be a
hundred times longer than the template itself."""
VALUES_MAX = 5_000
"""Most values that are listed with their source: a configuration written by hand has a few hundred."""
NEVER_RIGHT = ("checkpoint_storage", "environment.variables", "environment.secrets", "environment.registry_auth")
"""Groups in which nothing that is wrong is mended by more values: an address or a key of a store must not be kept, either."""
_INDEX = re.compile(r"\[.*$")


@dataclass(frozen=True)
class Resolved:
    config: ExperimentConfig
    given: Mapping[Path, int]
    """Each value that was given -> 0 for the configuration, n for the n-th layer."""

    def paths_of(self, source: int) -> list[str]:
        """Paths that the source gave, up to PATHS_CHARACTERS_MAX characters in all."""
        found, characters = list[str](), 0
        for path, giver in self.given.items():
            if giver == source and (characters := characters + len(dotted(path))) <= PATHS_CHARACTERS_MAX:
                found.append(dotted(path))
        return found

    def count_of(self, source: int) -> int:
        return sum(giver == source for giver in self.given.values())

    def values(self, said: Collection[str] = ()) -> list[Value]:
        """All values, built-in ones included; of very many the first. `said`: paths that the command line set."""
        document = json.loads(self.config.to_json())
        first = islice(leaves(document), VALUES_MAX)
        return [Value(dotted(path), value, self._source(path, said)) for path, value in first]

    def _source(self, path: Path, said: Collection[str]) -> int:
        # A short form stands for what is below it: `reproducibility: exact`.
        found = next((self.given[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.given), BUILT_IN)
        if found == 0 and any(dotted(path[:end]) in said for end in range(1, len(path) + 1)):
            return COMMAND_LINE
        return found


def resolved(
    document: Mapping[str, Any], layers: Sequence[Layer], read: Callable[[Mapping[str, Any]], ExperimentConfig] = validated
) -> Resolved:
    """`layers`: the more specific first. `read`: makes the configuration of what is merged. Raises ConfigError, whose sentences
    name the layer that gave a wrong value."""
    config, given = combined([document, *(layer.config for layer in layers)])
    config.pop(TEMPLATE, None)
    given.pop((TEMPLATE,), None)
    try:
        return Resolved(read(config), given)
    except ConfigError as error:
        raise ConfigError([_traced(problem, given, layers) for problem in error.problems]) from error


def _traced(problem: Problem, given: Mapping[Path, int], layers: Sequence[Layer]) -> Problem:
    where = _INDEX.sub("", problem.path)
    sources = sorted({source for path, source in given.items() if source and where and _touches(dotted(path), where)})
    if not sources:
        return problem
    names = " and ".join(named(layers[source - 1]) for source in sources)
    return Problem(problem.path, f"{problem.message}; it comes from {names}", problem.value)


def _touches(path: str, where: str) -> bool:
    """True if the paths are equal, or one is below the other."""
    return path == where or path.startswith(f"{where}.") or where.startswith(f"{path}.")


def check_part(document: Any) -> dict[str, Any]:
    """The document, if it can be a part of a configuration: what it says is right as far as it can be told without the rest.
    Raises ConfigError."""
    if not isinstance(document, dict) or not document:
        raise ConfigError([Problem("", "it must be a mapping of fields in the shape of a configuration")])
    if problem := unacceptable(document) or unprintable_name(document):
        raise ConfigError([Problem(*problem)])
    if TEMPLATE in document:
        raise ConfigError([Problem(TEMPLATE, "a template or default names no other template; leave it out")])
    try:
        size = len(canonical(document))
    except (TypeError, ValueError) as error:
        why = "it must hold text, finite numbers, true, false, null, lists and mappings with text as names only"
        raise ConfigError([Problem("", f"{why} ({error})")]) from error
    if size > BYTES_MAX:
        raise ConfigError([Problem("", f"it has {size} bytes as JSON; at most {BYTES_MAX} are allowed")])
    try:
        ExperimentConfig.model_validate(document)
    except ValidationError as error:
        own = [dotted(path) for path, _ in leaves(document)]
        if found := [problem for problem in explain(error) if _is_own(problem, own)]:
            raise ConfigError(found) from error
    return document


def _is_own(problem: Problem, own: Sequence[str]) -> bool:
    """True if the part itself is wrong. A field that is missing, or does not fit another one, the other parts may mend."""
    where = _INDEX.sub("", problem.path)
    return where in NEVER_RIGHT or any(where == path or where.startswith(f"{path}.") for path in own)
