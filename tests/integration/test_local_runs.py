"""Trials in the foreground: `tenuto exp create --local` and `tenuto.run_local`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import tenuto
from tenuto.cli.main import app
from tenuto.client.errors import ClientError
from tenuto.schemas.reports import EnvironmentReport, MetricsReport, ValidationReport
from tenuto.workers.core_api.local_record import RunDescription, checkpoints_of, read_lines, read_run
from tenuto.workers.core_api.session import current
from tenuto.workers.errors import UserError
from tests.integration.test_exact_resume import assert_equal

ROOT = Path(__file__).parents[2]
LINE = ROOT / "tests" / "support" / "trials" / "local_line"
SUMMING = ROOT / "tests" / "support" / "scripts" / "summing"
TENUTO = Path(sys.executable).with_name("tenuto")
SECONDS_MAX = 240
SUMMING_CONFIG = """\
name: summing here
entrypoint: train.py
hyperparameters: {factor: {type: int, minval: 2, maxval: 9}}
searcher: {name: asha, metric: total, max_length: {epochs: 3}, max_trials: 4, smaller_is_better: false}
min_validation_period: {epochs: 1}
min_checkpoint_period: {batches: 4}
reproducibility: {experiment_seed: 4}
"""


def create(here: Path, *arguments: str | Path, typed: str = "", **environment: str) -> tuple[int, str]:
    """Exit status and output of `tenuto exp create --local`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
    done = subprocess.run(
        [TENUTO, "exp", "create", "--local", *map(str, arguments)],
        cwd=here,
        env={**clean, "CUDA_VISIBLE_DEVICES": "", **environment},
        input=typed,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def line_trial() -> Any:
    spec = importlib.util.spec_from_file_location("local_line_model", LINE / "model_def.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.LineTrial


def weights(directory: Path, into: Path) -> dict[str, Any]:
    """State in the latest checkpoint of a record."""
    run = tenuto.LocalRun(directory, {}, 0, True, None)
    found = run.copy_checkpoint(into)
    return {
        path.relative_to(found).as_posix(): torch.load(path, weights_only=False)
        for path in sorted(found.rglob("*"))
        if path.suffix in (".pt", ".pth")
    }


@pytest.fixture(autouse=True)
def as_before() -> Any:
    threads, exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(exact)


def test_a_class_is_trained_interrupted_and_resumed_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kind, config, handler = line_trial(), LINE / "config.yaml", signal.getsignal(signal.SIGINT)
    whole = tenuto.run_local(kind, config, directory=tmp_path / "whole")
    said = capfd.readouterr().err
    assert "validation (epoch 4 of 4): loss " in said
    assert re.search(r"batch 20: checkpoint 0-1-1-20, \d+\.\d MB", said)
    assert whole.complete
    assert whole.trial.seen == 20
    assert [item["batches"] for item in whole.validations] == [10, 20]
    bodies = [line.body for line in read_lines(whole.directory)]
    assert {20, 16}.issubset(point.batches for body in bodies if isinstance(body, MetricsReport) for point in body.points)
    assert any(isinstance(body, EnvironmentReport) for body in bodies)
    assert (whole.directory / "code" / "model_def.py").read_text() == (LINE / "model_def.py").read_text()

    monkeypatch.setenv("TEST_INTERRUPT_AT", "7")
    parts = tenuto.run_local(kind, config, directory=tmp_path / "parts", quiet=True)
    assert (parts.complete, checkpoints_of(parts.directory)[-1].batches) == (False, 8)
    monkeypatch.delenv("TEST_INTERRUPT_AT")
    parts = tenuto.run_local(kind, config, directory=tmp_path / "parts", quiet=True)
    assert parts.complete
    assert parts.validations == whole.validations
    assert_equal(weights(parts.directory, tmp_path / "a"), weights(whole.directory, tmp_path / "b"))

    again = tenuto.run_local(kind, config, directory=tmp_path / "parts", quiet=True)
    assert again.complete, "a run that is over is not trained again"
    assert again.validations == whole.validations
    assert (current(), signal.getsignal(signal.SIGINT)) == (None, handler)


def test_a_configuration_as_data_and_values_over_its_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space = {"hyperparameters": {"lr": {"type": "log", "minval": -3, "maxval": -1}}}
    data = {**space, "searcher": {"metric": "loss", "max_length": {"batches": 3}}}
    script = {"name": "script", "entrypoint": "train.py", "searcher": {"metric": "loss", "max_length": {"batches": 3}}}
    with tenuto.init(script, directory=tmp_path / "script"), pytest.raises(UserError, match="has a run already"):
        tenuto.run_local(line_trial(), data)
    run = tenuto.run_local(line_trial(), data, hyperparameters={"lr": 0.01}, quiet=True)
    assert run.directory == tmp_path / "tenuto-runs" / "LineTrial-1"
    description = read_run(run.directory)
    assert (run.hyperparameters, description.given) == ({"lr": 0.01}, {"hyperparameters.lr": "0.01"})
    assert description.trial_seed not in (None, description.seed)
    with pytest.raises(UserError, match="holds a run with another configuration"):
        tenuto.run_local(line_trial(), data, directory=run.directory)
    with pytest.raises(UserError, match=r"tenuto\.run_local\(config\): .*searcher\.max_length"):
        tenuto.run_local(line_trial(), {"searcher": {"metric": "loss"}})


def test_a_debugger_works_in_the_command(tmp_path: Path) -> None:
    code, said = create(tmp_path, LINE / "config.yaml", LINE, typed="p 'six', 6 * 7, batch_idx\nc\n", TEST_BREAK_AT="2")
    assert code == 0, said
    assert "('six', 42, 2)" in said
    record = tmp_path / "tenuto-runs" / "line-here-1"
    assert f"the run is over; `tenuto run import {record}` makes it an experiment" in said
    assert read_run(record).context_hash
    assert (record / "code" / "config.yaml").read_text() == (LINE / "config.yaml").read_text(), "the whole model directory"
    assert not list(LINE.glob("tenuto-runs"))


@pytest.fixture
def summing(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(SUMMING_CONFIG)
    return tmp_path


def description_of(here: Path, name: str) -> RunDescription:
    return read_run(here / "tenuto-runs" / name)


def test_a_script_is_trained_with_the_first_draw_of_the_search_or_a_value(summing: Path) -> None:
    for _ in range(2):
        code, said = create(summing, "config.yaml", SUMMING)
        assert code == 0, said
    first, second = (description_of(summing, f"summing-here-{number}") for number in (1, 2))
    assert first.hyperparameters == second.hyperparameters
    assert (first.seed, first.trial_seed) == (4, second.trial_seed)
    assert f"hyperparameters {json.dumps(first.hyperparameters)}, experiment_seed 4" in said
    code, said = create(summing, "config.yaml", SUMMING, "--set", "hparams.factor=3", "--record", "mine")
    assert code == 0, said
    assert read_run(summing / "mine").hyperparameters == {"factor": 3}
    (last,) = [line.body for line in read_lines(summing / "mine") if isinstance(line.body, ValidationReport)][-1:]
    assert last.metrics["total"] == 3.0 * sum(range(30))


def test_what_is_refused_leaves_nothing_behind(summing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(summing)
    for arguments, expected in (
        (("none.yaml", SUMMING), "Cannot read none.yaml: No such file or directory"),
        (("config.yaml", SUMMING, "--follow"), "--follow is for experiments of a cluster: leave it out, or leave out --local."),
        (("config.yaml", SUMMING, "--test", "--record", "x"), "--record is for experiments of a cluster"),
        (("config.yaml", SUMMING, "-s", "searcher.mtric=loss"), "searcher.mtric: there is no such field; did you mean metric?"),
        (("config.yaml", SUMMING, "-s", "entrypoint=trian.py"), "entrypoint: trian.py is not in "),
        (("config.yaml", SUMMING, "--record", "config.yaml"), "cannot be written: File exists; name another place with"),
        (("config.yaml", SUMMING, "-s", "environment.secrets={KEY: keys}"), "set KEY as variables of this command"),
    ):
        found = CliRunner().invoke(app, ["exp", "create", "--local", *map(str, arguments)])
        assert isinstance(found.exception, ClientError), found.output
        assert expected in str(found.exception)
    assert [path.name for path in summing.iterdir()] == ["config.yaml"]
    (summing / "mine" / "code").mkdir(parents=True)
    (summing / "mine" / "code" / "thesis.tex").touch()
    found = CliRunner().invoke(app, ["exp", "create", "--local", "config.yaml", str(SUMMING), "--record", "mine"])
    assert "mine is not empty and holds no record of a run; name a new directory." in str(found.exception)
    assert [path.name for path in (summing / "mine").rglob("*")] == ["code", "thesis.tex"], (
        "files of the user's stay as they were"
    )


def test_a_metric_that_is_never_reported_fails_as_in_the_cluster(summing: Path) -> None:
    code, said = create(summing, "config.yaml", SUMMING, "--set", "searcher.metric=accuracy")
    assert code == 2
    assert "tenuto: the trial failed: No trial reported the metric 'accuracy' that the searcher compares; reported were: " in said


def test_an_error_of_a_script_is_said_as_in_the_cluster(summing: Path) -> None:
    (summing / "bad").mkdir()
    (summing / "bad" / "train.py").write_text(
        "import atexit; atexit.register(print, 'handled')\n\ndef go():\n    raise ValueError('no data.csv')\n\ngo()\n"
    )
    code, said = create(summing, "config.yaml", "bad")
    assert code == 2
    assert said.startswith("handled\n"), "exit handlers run, and their output is written"
    assert "tenuto: the trial failed: train.py:4: ValueError: no data.csv\n" in said


KERAS = """\
import keras, numpy
from tenuto.keras import KerasTrial

class Line(KerasTrial):
    def build_model(self):
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(self.context.get_hparam("lr")), loss="mse")
        return model

    def build_training_data(self):
        x = numpy.random.default_rng(1).random((32, 2), dtype="float32")
        return x, x.sum(axis=1, keepdims=True)

    build_validation_data = build_training_data
"""


def test_a_keras_trial_is_trained(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model_def.py").write_text(KERAS)
    (tmp_path / "config.yaml").write_text(
        "name: k\nentrypoint: model_def:Line\nhyperparameters: {lr: 0.1, global_batch_size: 8}\n"
        "searcher: {name: single, metric: val_loss, max_length: {epochs: 2}}\n"
    )
    code, said = create(tmp_path, "config.yaml", "m", KERAS_BACKEND="torch")
    assert code == 0, said
    assert "tenuto: batch 8, validation (epoch 2 of 2): val_loss " in said
    assert [report.batches for report in checkpoints_of(tmp_path / "tenuto-runs" / "k-1")] == [8]


UNFIT = """\
import os, threading, time
import torch
from torch import nn
from tenuto import pytorch
from model_base import LineTrial

class Sampler(torch.utils.data.Sampler):
    def __len__(self):
        return 40
    def __iter__(self):
        order = list(range(40))
        __import__("random").Random().shuffle(order)
        return iter(order)

class Unfit(LineTrial):
    def build_training_data_loader(self):
        return pytorch.DataLoader(self._data(), batch_size=8, sampler=Sampler())

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.lock = threading.Lock()
        return super().train_batch(batch, epoch_idx, batch_idx)
"""


def test_the_test_names_what_would_not_be_resumed_and_a_metric_that_is_missing(tmp_path: Path) -> None:
    model = tmp_path / "m"
    model.mkdir()
    (model / "model_base.py").write_text((LINE / "model_def.py").read_text())
    (model / "model_def.py").write_text(UNFIT)
    wrong = ("-s", "entrypoint=model_def:Unfit", "-s", "searcher.metric=accuracy")
    code, said = create(tmp_path, LINE / "config.yaml", "m", "--test", *wrong)
    assert code == 2, said
    problems = [line.removeprefix("PROBLEM").strip() for line in said.splitlines() if line.startswith("PROBLEM")]
    assert any(line.startswith("searcher.metric is 'accuracy', but validation reports loss") for line in problems), said
    assert any("a resumed trial would differ: " in line and "order" in line for line in problems), said
    assert any("a resumed trial would differ: " in line and "lock" in line for line in problems), said
    assert any("its weights are not those of the trial that went on" in line for line in problems), said
    assert "Error: This experiment would not go well on a cluster: 4 problems, shown above." in said
