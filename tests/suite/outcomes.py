"""What a recorded run says: how each test ended, and the verdict on a run whose failed tests were looked at again. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

UNSTEADY_MAX = 3
"""Most unsteady tests with which a run passes. A few, so that luck refuses no finished work; not more, or nobody mends them."""
LOOKED_AT_MAX = 10
"""Most failed tests that are looked at again. With more than UNSTEADY_MAX the run fails anyway: the second look then only says
with which of them to begin, and has to end in minutes."""


@dataclass
class Test:
    """One test of a run."""

    __test__ = False  # no test class of pytest

    id: str
    outcome: str = "passed"
    """`passed`, `failed` (in its setup, call or teardown) or `skipped`."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Duration of setup, call and teardown."""
    failures: list[str] = field(default_factory=list)
    """Text of each failed phase, in order."""
    worker: str = ""


@dataclass
class Run:
    tests: dict[str, Test]
    """By id, in the order in which they ended."""
    collection_errors: list[str]

    @property
    def failed(self) -> list[Test]:
        return [test for test in self.tests.values() if test.outcome == "failed"]

    def count(self, outcome: str) -> int:
        return sum(test.outcome == outcome for test in self.tests.values())


def read(lines: Iterable[str]) -> Run:
    """The run that these lines of a record tell of. A last line that was cut by a kill is left out."""
    run = Run({}, [])
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record["kind"] == "collection":
            run.collection_errors.append(f"{record['id']}\n{record['text']}")
            continue
        test = run.tests.setdefault(record["id"], Test(record["id"]))
        test.seconds[record["when"]] = record["seconds"]
        test.worker = record["worker"]
        if record["outcome"] == "failed":
            test.outcome = "failed"
            test.failures.append(f"[{record['when']}]\n{record['text']}")
        elif record["outcome"] == "skipped" and test.outcome == "passed":
            test.outcome = "skipped"
    return run


@dataclass(frozen=True)
class Verdict:
    unsteady: Sequence[str]
    """Ids of tests that failed and then passed alone, each time."""
    failed: Sequence[str]
    """Ids of tests that failed again, or were not looked at again."""

    @property
    def passes(self) -> bool:
        return not self.failed and len(self.unsteady) <= UNSTEADY_MAX


def verdict(first: Run, looks: Mapping[str, Sequence[bool]], needed: int) -> Verdict:
    """Verdict on a run.

    Args:
        first: the whole run.
        looks: for each test that was looked at again, whether it passed, in order.
        needed: passes in a row that make a failed test an unsteady one.
    """
    unsteady, failed = [], []
    for test in first.failed:
        seen = looks.get(test.id, ())
        (unsteady if len(seen) == needed and all(seen) else failed).append(test.id)
    return Verdict(unsteady, failed)
