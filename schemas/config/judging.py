"""Judges a configuration that is to be submitted: plain data in, a checked model out. Pure; `reading.py` reads text, and
`errors.py` words the problems."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tenuto.schemas.config import entrypoint
from tenuto.schemas.config.experiment import ExperimentConfig
from tenuto.schemas.config.log_policies import check_policies
from tenuto.schemas.config.resources import SLOTS_MAX
from tenuto.schemas.config.rungs import with_shortest
from tenuto.schemas.config.submission import check_submission, unprintable_name
from tenuto.schemas.text import unacceptable

NOT_FINITE = "must be a finite number: a record is JSON, which has no other; leave it out, or give text that your code converts"


class Unfit(ValueError):
    """Refused, although each field has its type. `problems`: path, sentence with what is allowed, and the wrong value where it is
    shown."""

    def __init__(self, problems: Sequence[tuple[str, str] | tuple[str, str, float]]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{path}: {message}" for path, message, *_ in self.problems))


def judged(data: Mapping[str, Any], unchanged: Mapping[str, Any] = MappingProxyType({})) -> ExperimentConfig:
    """Configuration to be submitted. `unchanged`: parts of `data` that were read before, and judged, as
    models; with thousands of hyperparameters that takes most of the time. Raises Unfit and ValidationError."""
    new = {name: value for name, value in data.items() if name not in unchanged}
    if problem := unacceptable(new, integers=False) or unprintable_name(new):
        raise Unfit([problem])
    if (odd := non_finite(new)) is not None:
        raise Unfit([(odd[0], NOT_FINITE, odd[1])])
    config = ExperimentConfig.model_validate({**data, **unchanged})
    if (slots := config.resources.max_slots or 0) > SLOTS_MAX:
        raise Unfit([("resources.max_slots", f"must be at most {SLOTS_MAX}", slots)])
    found = entrypoint.check_launcher(config.entrypoint)
    if found := [*found, *check_policies(config.log_policies), *check_submission(config.hyperparameters, config.searcher)]:
        raise Unfit(found)
    if problem := unacceptable(new):
        raise Unfit([problem])
    return with_shortest(config, data["searcher"])


def non_finite(document: Any) -> tuple[str, float] | None:
    """Path and value of the first number in plain data that is infinite or none; None if there is no such number."""
    for path, value in _values(document):
        if isinstance(value, float) and not math.isfinite(value):
            return path, value
    return None


def _values(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    waiting = [(path, document)]  # a stack of its own: documents may be nested deeper than Python's
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(f"{path}.{name}" if path else str(name), item) for name, item in reversed([*value.items()])]
        elif isinstance(value, (list, tuple)):
            waiting += [(f"{path}[{index}]", item) for index, item in reversed([*enumerate(value)])]
        else:
            yield path, value
