"""The end of a run is what its worker told; an exit code is only a number."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.schemas.events import parse
from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.reports import WorkersExitedReport
from tenuto.workers.agent.outcome import name_end
from tenuto.workers.agent.runtimes.files import RunFiles, read_exit
from tenuto.workers.agent.runtimes.runtime import Exit
from tenuto.workers.agent.secret_masks import NO_MASK
from tenuto.workers.endings import ENDINGS, Ending

OUTCOME = {
    "finished": "finished", "preempted": "preempted", "paused": "paused", "failed": "failed", "killed": "lost",
    "invalid_hyperparameters": "failed", "will_repeat": "failed", "followed": "lost", "infrastructure": "lost", "hung": "lost",
}  # fmt: skip
CODES = st.integers(0, 255)


@given(CODES, st.sampled_from([None, "run", "preempt", "stop", "pause", "kill"]))
def test_a_bare_code_is_a_failure_whose_sentence_names_it(code: int, killed_for: str | None) -> None:
    end = name_end(Exit(code), None, killed_for, NO_MASK)  # type: ignore[arg-type]
    assert (end.outcome, end.exit_code, end.cause, end.followed) == ("failed", code, None, False)
    assert end.error is not None
    assert end.error.startswith(f"The worker process exited with code {code}, and told nothing of its end.")


@given(CODES, st.sampled_from(sorted(ENDINGS)), st.booleans())
def test_what_was_told_counts_whatever_the_code(code: int, told: Ending, killed: bool) -> None:
    end = name_end(Exit(code, "said", signaled=killed), told, None, NO_MASK)
    causes = ENDINGS - {"finished", "preempted", "paused", "failed", "killed"}
    assert end.outcome == OUTCOME[told]
    assert end.cause == (told if told in causes else None)
    assert end.followed == (told == "followed")
    assert end.error == (None if told in ("finished", "preempted", "paused") else "said")


def test_all_endings_have_an_outcome() -> None:
    assert OUTCOME.keys() == ENDINGS


@pytest.mark.parametrize(
    ("written", "outcome", "cause"),
    [
        ("137 exited", "failed", None),  # os._exit(137)
        ("137 killed", "lost", None),
        ("86 exited", "failed", None),
        ("86 refused", "failed", "will_repeat"),
        ("137", "lost", None),  # from the shell of an earlier release, which could not tell
        ("80", "failed", None),
        ("", "lost", None),
    ],
)
def test_the_exit_file_tells_a_signal_from_a_number(tmp_path: Path, written: str, outcome: str, cause: str | None) -> None:
    files = RunFiles(tmp_path)
    files.exit.write_text(f"{written}\n")
    end = name_end(read_exit(files), None, None, NO_MASK)
    assert (end.outcome, end.cause) == (outcome, cause)


@pytest.mark.parametrize(("code", "cause"), [(82, "invalid_hyperparameters"), (83, "followed"), (86, "will_repeat"), (1, None)])
def test_older_logs_and_agents_told_causes_by_codes(code: int, cause: str | None) -> None:
    old = b'{"allocation_id":"1-3-1","trial_id":"1-3","outcome":"failed","exit_code":%d,"error":"x"}' % code
    event = parse("WorkersExited", 1, old)
    assert isinstance(event, WorkersExited)
    assert event.cause == cause
    report = b'{"kind":"workers_exited","agent_id":"a",' + old[1:]
    assert WorkersExitedReport.from_json(report).cause == cause
    new = report[:-1] + b',"cause":null}'
    assert WorkersExitedReport.from_json(new).cause is None
    assert b'"cause":null' in WorkersExitedReport.from_json(new).to_json()
