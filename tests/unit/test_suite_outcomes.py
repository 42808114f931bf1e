"""Verdicts on runs of the suite."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.suite.outcomes import UNSTEADY_MAX, Run, Test, read, verdict


def line(test_id: str, when: str, outcome: str, text: str = "") -> str:
    return json.dumps(
        {"kind": "test", "id": test_id, "when": when, "outcome": outcome, "seconds": 1.5, "worker": "gw0", "text": text}
    )


def test_a_test_is_failed_whichever_of_its_phases_failed() -> None:
    lines = [
        line("a", "setup", "passed"), line("a", "call", "passed"), line("a", "teardown", "failed", "left something"),
        line("b", "setup", "skipped"), line("b", "teardown", "passed"),
        line("c", "setup", "failed", "no server"), line("c", "teardown", "passed"),
        line("d", "setup", "passed"), line("d", "call", "passed"), line("d", "teardown", "passed"),
        line("e", "???", "failed", "worker 'gw1' crashed while running 'e'"),
    ]  # fmt: skip
    run = read(lines)
    assert {test.id: test.outcome for test in run.tests.values()} == {
        "a": "failed", "b": "skipped", "c": "failed", "d": "passed", "e": "failed",
    }  # fmt: skip
    assert run.tests["a"].failures == ["[teardown]\nleft something"]
    assert run.tests["d"].seconds == {"setup": 1.5, "call": 1.5, "teardown": 1.5}


def test_what_cannot_be_collected_is_on_record_and_a_cut_last_line_is_left_out() -> None:
    run = read([json.dumps({"kind": "collection", "id": "x.py", "text": "SyntaxError"}), line("a", "call", "passed")[:-9]])
    assert (run.tests, run.collection_errors) == ({}, ["x.py\nSyntaxError"])


@given(st.lists(st.lists(st.booleans(), max_size=2), max_size=8))
def test_a_run_passes_only_if_each_failure_passed_twice_and_there_are_few(seen: list[list[bool]]) -> None:
    run = Run({str(number): Test(str(number), "failed") for number in range(len(seen))} | {"good": Test("good")}, [])
    found = verdict(run, {str(number): looks for number, looks in enumerate(seen)}, 2)
    assert sorted([*found.unsteady, *found.failed]) == sorted(map(str, range(len(seen))))
    assert all(seen[int(test_id)] == [True, True] for test_id in found.unsteady)
    assert found.passes == (all(looks == [True, True] for looks in seen) and len(seen) <= UNSTEADY_MAX)


def test_a_failure_that_was_not_looked_at_again_is_a_failure() -> None:
    found = verdict(Run({"a": Test("a", "failed")}, []), {}, 2)
    assert (found.failed, found.passes) == (["a"], False)
