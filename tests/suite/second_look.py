"""Runs the suite, and looks a second time at what failed: alone, in order, with nothing beside it.

    python -m tests.suite.second_look -n 3 --dist loadfile

All arguments are pytest's. A test that failed and then passes twice in a row is *unsteady*: a defect to be mended, which does
not refuse the work of this run. With more than three of them the run fails all the same. Each is printed last, in full, with
its first failure, and written to `.suite/unsteady.txt`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.suite import child, outcomes, recording
from tests.suite.outcomes import LOOKED_AT_MAX, UNSTEADY_MAX, Run, Verdict
from tests.support import litter

DIRECTORY = Path(".suite")
FIRST, VERDICT = "first.jsonl", "verdict.json"
"""Files there: what became of each test of the whole run, and what the second look found."""
LOOKS = 2
"""Passes in a row after which a failed test is an unsteady one."""
LOOK_SECONDS_MAX = 900
"""Longest look at one test. More than twice the longest test with its cluster; pytest's own timeout ends a hang earlier."""
TESTS_FAILED, INTERRUPTED = 1, 2
"""pytest's exit status for a run to its end with failures, and for one that was stopped; all but the first and 0 say that the run
itself broke."""
BAR = "=" * 20
BESIDE = ("-n", "--numprocesses", "--dist", "--maxprocesses")
"""Options of pytest-xdist, whose value follows them or an equals sign."""


def main(arguments: Sequence[str]) -> int:
    """Exit status of the whole: 0 if nothing failed, or nothing but a few unsteady tests; else pytest's of the first run."""
    child.hear_sigterm()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir()
    before = litter.snapshot()
    try:
        status = judged(arguments)
    except KeyboardInterrupt:  # pytest got it, too, and has said what it had found
        status = INTERRUPTED
    if left := litter.left_behind(before):
        print("Left behind on this machine, by this run or by whatever else ran:", *left, sep="\n  ", flush=True)
    return status


def judged(arguments: Sequence[str]) -> int:
    """Runs the suite, then what failed of it."""
    record = DIRECTORY / FIRST
    status = run_recorded(record, arguments)
    first = read(record)
    if status != TESTS_FAILED or first.collection_errors or not first.failed:
        return status
    again = first.failed[:LOOKED_AT_MAX]
    print(f"\nSecond look at {len(again)} of {len(first.failed)} failed tests, each alone:", flush=True)
    alone = without_processes(arguments)
    looks = {test.id: look(test.id, alone, number) for number, test in enumerate(again)}
    found = outcomes.verdict(first, looks, LOOKS)
    (DIRECTORY / VERDICT).write_text(json.dumps({"unsteady": found.unsteady, "failed": found.failed}), encoding="utf-8")
    report = told(first, found)
    (DIRECTORY / "unsteady.txt").write_text(report, encoding="utf-8")
    print(report, end="", flush=True)
    return 0 if found.passes else status


def run_recorded(record: Path, arguments: Sequence[str], seconds_max: float | None = None) -> int:
    """Exit status of pytest with these arguments; what became of each test is in the record."""
    command = [sys.executable, "-m", "pytest", "-p", recording.__name__, *arguments]
    environment = {**os.environ, recording.VARIABLE: str(record.absolute())}
    return child.run(command, seconds_max, env=environment)


def read(record: Path) -> Run:
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    return outcomes.read(lines)


def look(test_id: str, arguments: Sequence[str], number: int) -> list[bool]:
    """True for each time that the test passed alone; the first time that it does not is the last."""
    seen: list[bool] = []
    while len(seen) < LOOKS and all(seen):
        record = DIRECTORY / f"look-{number}-{len(seen)}.jsonl"
        status = run_recorded(record, [*arguments, test_id], LOOK_SECONDS_MAX)
        ended = read(record).tests
        seen.append(status == 0 and set(ended) == {test_id} and ended[test_id].outcome == "passed")
    print(f"{test_id}: {'unsteady' if all(seen) else 'failed again'}", flush=True)
    return seen


def without_processes(arguments: Sequence[str]) -> list[str]:
    """These arguments of pytest without what names tests or spreads them over processes."""
    kept: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word in BESIDE:
            next(rest, None)
        elif not word.startswith(tuple(f"{name}=" for name in BESIDE)) and not _names_tests(word):
            kept.append(word)
    return [*kept, "-n", "0"]


def _names_tests(word: str) -> bool:
    return not word.startswith("-") and Path(word.partition("::")[0]).exists()


def told(first: Run, found: Verdict) -> str:
    """What is printed last: each failure of an unsteady test in full, and the counts."""
    parts = [f"{BAR} unsteady: {name} {BAR}\n" + "\n".join(first.tests[name].failures) + "\n" for name in found.unsteady]
    parts += [f"failed: {name}\n" for name in found.failed]
    if found.unsteady:
        names = "".join(f"  {name}\n" for name in found.unsteady)
        parts.append(
            f"Unsteady (failed once, then passed {LOOKS} times alone): {len(found.unsteady)}; a run passes with at most "
            f"{UNSTEADY_MAX}. Each is a defect of the product or of the test, to be mended first:\n{names}"
        )
    passed = first.count("passed") + len(found.unsteady)
    parts.append(f"suite: {passed} passed, {len(found.failed)} failed, {first.count('skipped')} skipped\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
