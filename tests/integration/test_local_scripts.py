"""Scripts in the foreground: those that know nothing of Tenuto, and what the test of one tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tenuto.cli.main import app
from tests.integration.test_local_runs import SUMMING_CONFIG, create


def test_a_script_that_calls_no_api_is_over_where_no_trials_are_compared(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('it trains')\n")
    config = tmp_path / "config.yaml"
    config.write_text("entrypoint: python train.py\nsearcher: {name: single, metric: total, max_length: {epochs: 3}}\n")
    status, output = create(tmp_path, "config.yaml", ".", "--record", tmp_path / "record")
    assert (status, "the run is over; it reported nothing" in output) == (0, True), output
    status, output = create(tmp_path, "config.yaml", ".", "--test")
    assert (status, "it calls no API: its trial is complete when it ends" in output) == (0, True), output
    config.write_text(config.read_text().replace("single", "random, max_trials: 2"))
    status, output = create(tmp_path, "config.yaml", ".", "--record", tmp_path / "other")
    assert status == 2
    assert "train.py ended without calling tenuto.init(), so nothing of it could be recorded, and random has nothing" in output


SCRIPT = """\
import tenuto
HELPER
with tenuto.init() as run:
    EPOCHS
    steps, total = 0, 0.0
    if run.checkpoint.latest is not None:
        with run.checkpoint.restore() as directory:
            total = float((directory / FILE).read_text())
        steps = run.checkpoint.latest.steps
    for operation in run.operations():
        while steps < operation.steps and not run.should_preempt():
            steps, total = steps + 1, total + 0.5
            ENDS
            if SAVES:
                with run.checkpoint.save(steps) as directory:
                    (directory / "total").write_text(str(total))
        if steps == operation.steps:
            run.report_validation(steps, {"total": VALUE})
"""
FINE = {
    "HELPER": "", "ENDS": "", "EPOCHS": "run.epoch_batches = 5", "FILE": "'total'",
    "SAVES": "run.should_save(steps) or run.should_preempt()", "VALUE": "total",
}  # fmt: skip


def ends_at(batch: int) -> str:
    """Early stopping that saves as it ends."""
    lines = (
        f"if steps >= {batch}:",
        "    with run.checkpoint.save(steps) as directory:",
        "        (directory / 'total').write_text(str(total))",
        "    run.report_validation(steps, {'total': total})",
        "    run.end_training('enough')",
        "    break",
    )
    return f"\n{' ' * 12}".join(lines)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"HELPER": "import left_out"}, "train.py:2: ModuleNotFoundError: No module named 'left_out'"),
        ({"EPOCHS": "pass"}, "searcher.max_length counts epochs: right after tenuto.init(), set run.epoch_batches"),
        ({"VALUE": "float('nan')"}, "total is nan at batch 12: this trial counts as the worst."),
        ({"SAVES": "False"}, "it saves no checkpoint: after any interruption the trial begins again."),
        ({"SAVES": "steps == operation.steps"}, "the only checkpoint is that of batch 12: save where "),
        ({"FILE": "'totl'"}, "it does not resume from its checkpoint: train.py:8: FileNotFoundError: "),
        ({"HELPER": "import os; os._exit(7)"}, "the process ended by itself with status 7"),
        (
            {"VALUE": "total + __import__('os').getpid()"},
            "note     resumed at batch 4 in a fresh process, it validates",
        ),
        ({}, "at batch 12 it has the metrics of the one that went on, bit for bit"),
        ({"ENDS": ends_at(3)}, "note     its own code ended the training at batch 3 (enough)"),
        ({"ENDS": ends_at(3)}, "ok       resumed at batch 3 in a fresh process, without an error"),
        ({"ENDS": ends_at(3), "FILE": "'totl'"}, "it does not resume from its checkpoint: train.py:8: FileNotFoundError: "),
        ({"ENDS": ends_at(6)}, "at batch 6 it has the metrics of the one that went on, bit for bit"),
        ({"ENDS": ends_at(6), "SAVES": "False"}, "the only checkpoint is that of batch 6: save where run.should_save(steps)"),
    ],
)
def test_what_the_test_says_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], change: dict[str, str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(SUMMING_CONFIG)
    text = SCRIPT
    for name, code in (FINE | change).items():
        text = text.replace(name, code)
    model = tmp_path / "m"
    model.mkdir()
    (model / "train.py").write_text(text)
    (model / "left_out.py").write_text("")
    (model / ".tenutoignore").write_text("left_out.py\n")
    found = CliRunner().invoke(app, ["exp", "create", "--local", "--test", "config.yaml", "m"])
    problems = [line for line in found.output.splitlines() if line.startswith("PROBLEM")]
    if problems:
        assert getattr(found.exception, "exit_code", None) == 2, found.output
        assert [expected in line for line in problems] == [True], found.output
    else:
        assert found.exit_code == 0, found.output
        assert expected in found.output
