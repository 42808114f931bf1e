"""What several runs of the suite say together."""

from __future__ import annotations

from tests.suite.outcomes import Run, Test
from tests.suite.ruler import Measured, first_line, table


def measured(number: int, **fields: object) -> Measured:
    given = {
        "number": number, "seed": 7 + number, "load": 0, "commit": "0123456789", "began": "2026-01-02T03:04:05", "seconds": 90.0,
        "status": 0,
        "unsteady": (), "failed": (), "idle_share": 0.5, "memory_bytes_max": 2_000_000_000, "left": (),
    }  # fmt: skip
    return Measured(**(given | fields))  # type: ignore[arg-type]


def run(*tests: Test) -> Run:
    return Run({test.id: test for test in tests}, [])


def test_rates_first_words_and_times() -> None:
    good = Test("a", seconds={"setup": 4.0, "call": 1.0})
    bad = Test("b", "failed", {"call": 2.0}, ["[call]\n    assert x\nE   assert 1 == 2\nE    +  where"])
    worse = Test("c", "failed", {"setup": 9.0}, ["[setup]\nno server"])
    runs = [
        (measured(0), run(good, Test("b", seconds={"call": 4.0}))),
        (measured(1, load=4, status=1, unsteady=("b",), failed=("c",)), run(good, bad, worse)),
        (measured(2, unsteady=("b",), left=("/tmp/x",)), run(good, bad)),
    ]
    lines = table(runs).splitlines()
    assert " ".join(lines[2].split()) == "1 8 4 01234567 2026-01-02T03:04:05 1.5 1 1 1 0 50% 2.0 GB 0 exit 1"
    assert lines[5:10] == [
        "Unsteady and failed tests, by rate:", "  2/3 unsteady  b", "      assert 1 == 2", "  1/3 failed  c", "      no server",
    ]  # fmt: skip
    assert [line.split() for line in lines[12:16]] == [
        ["9.0", "setup", "c"], ["4.0", "setup", "a"], ["2.7", "call", "b"], ["1.0", "call", "a"],
    ]  # fmt: skip
    assert lines[-1] == "  run 2: /tmp/x"


def test_runs_without_a_defect_say_so() -> None:
    text = table([(measured(0), run(Test("a")))])
    assert "No test was unsteady in 1 runs." in text
    assert "Nothing was left behind." in text


def test_without_an_error_of_pytest_the_last_line_speaks() -> None:
    assert first_line(["[call]\n\n  worker crashed  \n"]) == "worker crashed"
    assert first_line([]) == ""
