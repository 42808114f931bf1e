"""Draws from a search space. Counter-based: each number depends on its own key and on nothing drawn before.

The key is (experiment seed, trial number, purpose, path of the hyperparameter), hashed with BLAKE2b. So neither the order in
which trials are asked for nor the order of keys in the configuration can change a value, and equal seeds give equal searches
on every platform. They are a contract: a draw is part of the record. Which value of a range a number stands for is said in
`schemas/config/ranges.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from tenuto.schemas.config.constraints import holds
from tenuto.schemas.config.hyperparameters import (
    CategoricalHyperparameter,
    ConstHyperparameter,
    DoubleHyperparameter,
    IntHyperparameter,
    LogHyperparameter,
)
from tenuto.schemas.config.ranges import BITS, value_at
from tenuto.schemas.config.searchers import Searcher
from tenuto.schemas.config.space import allowed, flat, same
from tenuto.services.searcher.state.space import Space, kept

Path = tuple[str, ...]
Leaf = ConstHyperparameter | IntHyperparameter | DoubleHyperparameter | LogHyperparameter | CategoricalHyperparameter

ATTEMPTS_MAX = 20_000
"""Draws for one trial until its constraints hold: enough where one in a thousand does, over within seconds where none does."""
ATTEMPTS_MAX_ELSE = 1_000
"""The same where there is something else to go on with."""
EXHAUSTED_MAX = 256
"""Trials kept for which no draw was found: each event of the experiment asks for the same trial again."""
_KEY = json.JSONEncoder(separators=(",", ":"))
_PERSON = b"tenuto.search.1"


def draw_bits(seed: int, trial_number: int, purpose: str, path: Path = ()) -> int:
    """A uniform number in [0, 2**BITS) that belongs to this key."""
    key = f"[{seed},{trial_number}{_key_tail(purpose, path)}".encode()
    return int.from_bytes(blake2b(key, digest_size=BITS // 8, person=_PERSON).digest(), "big")


@lru_cache(maxsize=4096)
def _key_tail(purpose: str, path: Path) -> str:
    """The rest of the key's JSON: it is the same for all trials."""
    return f",{_KEY.encode([purpose, *path])[1:]}"


def trial_seed(seed: int, trial_number: int) -> int:
    """The seed of a trial's training: a number in [0, 2**63)."""
    return draw_bits(seed, trial_number, "trial_seed") >> (BITS - 63)


def leaves(space: Mapping[str, Any], prefix: Path = ()) -> Iterator[tuple[Path, Leaf]]:
    """Every hyperparameter with its path, in the order of the configuration."""
    for name, value in space.items():
        if type(value) is dict:
            yield from leaves(value, (*prefix, name))
        else:
            yield (*prefix, name), value


def fill(space: Mapping[str, Any], values: Mapping[Path, Any], prefix: Path = ()) -> dict[str, Any]:
    """The space with each hyperparameter replaced by its value: the nesting and the order of keys stay. What has no value is left
    out."""
    filled: dict[str, Any] = {}
    for name, value in space.items():
        path = (*prefix, name)
        if type(value) is dict:
            filled[name] = fill(value, values, path)
        elif path in values:
            filled[name] = values[path]
    return filled


def read(hyperparameters: Mapping[str, Any], path: Path) -> Any:
    """The value at the path; raises KeyError where the trial does not have it."""
    found: Any = hyperparameters
    for name in path:
        found = found[name]
    return found


class Undrawable(Exception):
    """No draw of ATTEMPTS_MAX keeps the constraints. The text is for the user."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A space taken apart once: most of what a new trial costs is drawing its hyperparameters. Equal only to itself, so that
    what is computed from it once can be kept with it."""

    space: Mapping[str, Any]
    leaves: tuple[tuple[Path, Leaf], ...]
    plain: bool
    """No groups and no conditions: the values by name are the hyperparameters."""


def plan_of(space: Mapping[str, Any]) -> Plan:
    """The plan of a space; made once of one that keeps it."""
    plan = space.memo.get(Plan) if isinstance(space, Space) else None
    if plan is None:
        found = tuple(leaves(space))
        plan = Plan(space, found, all(len(path) == 1 and not leaf.when for path, leaf in found))
        if isinstance(space, Space):
            space.memo.keep(plan)
    return plan


def sample(space: Mapping[str, Any], seed: int, trial_number: int, attempt: int = 0) -> dict[str, Any]:
    """One independent draw of every hyperparameter in use. Another attempt is another draw."""
    purpose = "hyperparameter" if attempt == 0 else f"hyperparameter/{attempt}"
    plan = plan_of(space)
    if plan.plain:
        return {
            path[0]: leaf.val if leaf.type == "const" else value_at(leaf, draw_bits(seed, trial_number, purpose, path))
            for path, leaf in plan.leaves
        }
    drawn = {
        path: value_at(leaf, draw_bits(seed, trial_number, purpose, path) if is_random(leaf) else 0) for path, leaf in plan.leaves
    }
    return fill(space, in_use(space, drawn))


Draw = Callable[[int], dict[str, Any]]
"""Hyperparameters by attempt: 0 is the first, others are asked for where a constraint does not hold."""


def configuration(
    settings: Searcher,
    space: Mapping[str, Any],
    trial_number: int,
    draw: Draw,
    attempts_max: int = ATTEMPTS_MAX_ELSE,
) -> dict[str, Any] | None:
    """Hyperparameters of the trial: the user's starting point with that number, if there is one, else the first draw that
    keeps the constraints. None: no draw of `attempts_max` does."""
    start = settings.starting_points[trial_number - 1] if trial_number <= len(settings.starting_points) else None
    if start is None and not settings.constraints:
        return draw(0)
    for attempt in range(attempts_max):
        drawn = draw(attempt)
        if start is not None:
            drawn = started_at(space, start, drawn)
        if keeps(settings.constraints, drawn):
            return drawn
    return None


class _Exhausted(dict[tuple[int, int], Searcher]):
    """(seed, trial number) for which no draw was found -> the settings then."""


def drawn(settings: Searcher, space: Mapping[str, Any], seed: int, trial_number: int, draw: Draw) -> dict[str, Any]:
    """`configuration`, which raises Undrawable where there is none."""
    memo = kept(space).memo
    exhausted = memo.get(_Exhausted)
    if exhausted is None:
        exhausted = memo.keep(_Exhausted())
    key = (seed, trial_number)
    if exhausted.get(key) is not settings:
        found = configuration(settings, space, trial_number, draw, ATTEMPTS_MAX)
        if found is not None:
            return found
        if len(exhausted) >= EXHAUSTED_MAX:
            exhausted.clear()
        exhausted[key] = settings
    raise Undrawable(undrawable(settings, trial_number))


def undrawable(settings: Searcher, trial_number: int) -> str:
    """The sentence for the user."""
    if trial_number <= len(settings.starting_points):
        return (
            f"searcher.starting_points[{trial_number - 1}] cannot be used: whatever was drawn for what it leaves out"
            f" ({ATTEMPTS_MAX:,} draws), searcher.constraints do not hold; change the point, or give it more values."
        )
    return (
        f"No configuration for trial {trial_number} keeps searcher.constraints: {ATTEMPTS_MAX:,} were drawn; loosen the"
        " constraints, or narrow the ranges of the hyperparameters that they name."
    )


def keeps(constraints: Iterable[str], hyperparameters: Mapping[str, Any]) -> bool:
    values = dict(dotted(hyperparameters))
    return all(holds(text, values) for text in constraints)


def dotted(hyperparameters: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values by dotted path. A mapping that is a value itself has both: the whole and its parts."""
    for name, value in hyperparameters.items():
        yield f"{prefix}{name}", value
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{name}.")


def started_at(space: Mapping[str, Any], start: Mapping[str, Any], drawn: Mapping[str, Any]) -> dict[str, Any]:
    """The draw with the user's values in place of it, as far as they are given; what `when` then asks for is the draw's."""
    known = dict(leaves(space))
    given = flat(start, {".".join(path): leaf for path, leaf in known.items()})
    values = {}
    for path, leaf in known.items():
        if ".".join(path) in given:
            values[path] = given[".".join(path)]
        else:
            try:
                values[path] = read(drawn, path)
            except KeyError:
                # It was not in use in the draw, but may be now: its middle, or its first value.
                values[path] = value_at(leaf, 1 << (BITS - 1))
    return fill(space, in_use(space, values))


def in_use(space: Mapping[str, Any], values: Mapping[Path, Any]) -> Mapping[Path, Any]:
    """The values without those whose `when` does not hold, or refers to one that is not in use itself."""
    conditions = {path: leaf.when for path, leaf in leaves(space) if leaf.when}
    if not conditions:
        return values
    named = {".".join(path): path for path, _ in leaves(space)}
    used: dict[Path, bool] = {}

    def uses(path: Path) -> bool:
        if path not in used:
            used[path] = all(
                uses(other) and any(same(values[other], value) for value in allowed(condition))
                for name, condition in conditions.get(path, {}).items()
                for other in [named[name]]
            )
        return used[path]

    return {path: value for path, value in values.items() if uses(path)}


def is_random(leaf: Leaf) -> bool:
    return leaf.type != "const"
