"""Scripts that end their training before the length that the search asked for: it ends well, where and why is on record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.config.reading import parse_config
from tenuto.schemas.reports import TrainingEndedReport, ValidationReport
from tenuto.workers.core_api.importing import fill_context, import_config
from tenuto.workers.core_api.local_record import read_lines
from tests.support.agent_stand_in import WAIT_SECONDS_MAX, WorkerBench
from tests.support.core_api_scripts import script
from tests.support.reactions import ends_of, stop_ended

LOOP = """
import sys, tenuto

with tenuto.init() as run:
    run.epoch_batches = 10
    for operation in run.operations():
        for step in range(1, operation.steps + 1):
            run.report_training(step, {"loss": 1.0})
            if step % 10 == 0:
                run.report_validation(step, {"total": float(step)})
            if step == 15:
                    ENDING
"""
BREAK = "the body of `for operation in run.operations()` ended, at step 15 of 20"
EXIT = "the script ended, at step 15 of 20"


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("break", BREAK),
        ("run.end_training('total did not grow:\\n  enough'); break", "total did not grow: enough"),
        ("run.end_training(); sys.exit()", ""),
        ("sys.exit()", EXIT),
        ("run.close(); sys.exit(0)", EXIT),
    ],
)
def test_a_loop_that_ends_early_and_has_validated_ends_well(tmp_path: Path, ending: str, reason: str) -> None:
    with script(tmp_path, LOOP.replace("ENDING", ending)) as trial:
        agent = trial.agent(2)
        agent.react = stop_ended
        run = trial.start(agent)
        assert run.wait() == 0, run.output()
        validation, _ = agent.reports
        assert isinstance(validation, ValidationReport)
        assert validation.batches == 10
        assert ends_of(agent.reports) == [(15, 1, reason)]
        assert agent.endings == ["finished"]
        assert "the training ended by itself at batch 15" in run.output()
        assert "its validation at batch 10 counts, and it is not trained further" in run.output()


def test_what_the_search_asked_for_before_it_knew_is_not_trained(tmp_path: Path) -> None:
    with script(tmp_path, LOOP.replace("ENDING", "break")) as trial:
        agent = trial.agent(2)
        run = trial.start(agent)
        agent.wait_for(lambda: len(ends_of(agent.reports)) == 1)
        agent.direct("run", 4)
        agent.direct("run", 8)
        agent.direct("stop")
        assert run.wait() == 0, run.output()
        assert [report.batches for report in agent.validations()] == [10]


def test_an_error_after_a_validation_is_an_error(tmp_path: Path) -> None:
    with script(tmp_path, LOOP.replace("ENDING", "raise ValueError('odd')")) as trial:
        agent = trial.agent(2)
        run = trial.start(agent)
        assert run.wait() == 1, run.output()
        assert ends_of(agent.reports) == []
        assert "ValueError: odd" in agent.error_file.read_text()


def test_one_that_is_told_to_leave_ends_nothing(tmp_path: Path) -> None:
    text = LOOP.replace("ENDING", "\n                    ".join(("while not run.should_preempt(): pass", "break")))
    with script(tmp_path, text) as trial:
        agent = trial.agent(2)
        run = trial.start(agent)
        agent.wait_for(lambda: len(agent.validations()) == 1)
        agent.direct("preempt")
        assert run.wait() == 80, run.output()
        assert ends_of(agent.reports) == []


CONFIG: dict[str, Any] = {"searcher": {"name": "single", "metric": "total", "max_length": {"epochs": 2}}}


def test_without_a_cluster_the_record_has_it_and_is_over(tmp_path: Path) -> None:
    text = LOOP.replace("ENDING", "break").replace("tenuto.init()", f"tenuto.init(config={CONFIG!r}, directory='record')")
    (tmp_path / "train.py").write_text(text)
    for starts in (1, 2):
        done = subprocess.run(
            [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, check=False
        )
        assert done.returncode == 0, done.stderr
        found = [line.body for line in read_lines(tmp_path / "record") if isinstance(line.body, TrainingEndedReport)]
        assert [(body.batches, body.said) for body in found] == [(15, BREAK)], f"start {starts}"
    assert "the training ended by itself" not in done.stderr, "the second one has nothing to do"


@pytest.mark.parametrize(
    ("length", "asked"),
    [({"epochs": 2}, {"batches": None, "epochs": 2}), ({"batches": 20}, {"batches": 20, "epochs": None})],
)
def test_an_import_ends_early_for_the_same_reason(tmp_path: Path, length: dict[str, int], asked: dict[str, int | None]) -> None:
    ending = "run.end_training('total did not grow'); break"
    settings = {**CONFIG, "name": "early", "searcher": {**CONFIG["searcher"], "max_length": length}}
    text = LOOP.replace("ENDING", ending).replace("tenuto.init()", f"tenuto.init(config={settings!r}, directory='record')")
    (tmp_path / "train.py").write_text(text)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, timeout=WAIT_SECONDS_MAX, check=True)
    imported = json.loads(parse_config(import_config(tmp_path / "record")).to_json())
    assert {unit: imported["searcher"]["max_length"].get(unit) for unit in asked} == asked, "that which the search had asked for"
    context = tmp_path / "context"
    context.mkdir()
    fill_context(tmp_path / "record", context, packed=True)
    trial = WorkerBench(tmp_path, context, imported, imported["hyperparameters"])
    with trial:
        agent = trial.agent(max(length.values()))
        agent.react = stop_ended
        run = trial.start(agent)
        assert run.wait() == 0, run.output()
        assert [(report.batches, report.length) for report in agent.validations()] == [(10, 10 if "batches" in length else 1)]
        assert ends_of(agent.reports) == [(15, 15 if "batches" in length else 1, "total did not grow")]
