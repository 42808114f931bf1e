"""Tables of an experiment in files are read back as they were, by Python's csv, pandas and pyarrow."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy
import pytest

from tenuto.cli.errors import CliError
from tenuto.cli.table_files import cell, csv_lines, write_tables
from tenuto.client.tables import Table, of_rows

TRIALS = of_rows(
    [
        {"id": "1-1", "best_metric": 0.1 + 0.2, "error": None, "hyperparameters": {"lr": 0.1, "net": {"act": "relu"}}},
        {"id": "1-2", "best_metric": None, "error": 'a "b",\nc', "hyperparameters": {"lr": "auto", "layers": [8, 8]}},
    ]
)
TRAINING = Table({"trial": numpy.array([1, 2**62]), "loss": numpy.array([1 / 3, numpy.nan]), "up": numpy.array([numpy.inf, 2.0])})
EMPTY = Table({})


class Experiment:
    def __init__(self, training: Table = TRAINING) -> None:
        self._training = training

    def trials(self) -> Table:
        return TRIALS

    def metrics(self, kind: str) -> Table:
        return self._training if kind == "training" else EMPTY


def test_csv_has_every_digit_and_what_is_missing_is_empty(tmp_path: Path) -> None:
    written = write_tables(Experiment(), tmp_path / "new" / "out", "csv")
    assert [path.name for path in written] == ["trials.csv", "training.csv", "validation.csv"]
    with written[0].open(newline="") as file:
        first, second = csv.DictReader(file)
    assert float(first["best_metric"]) == 0.1 + 0.2
    assert first["hyperparameters.net.act"] == "relu"
    assert (second["best_metric"], second["error"], second["hyperparameters.layers"]) == ("", 'a "b",\nc', "[8, 8]")
    with written[1].open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (int(second["trial"]), float(first["loss"]), second["loss"], first["up"]) == (2**62, 1 / 3, "", "inf")


@pytest.mark.parametrize("begin", "=+-@\uff1d\uff20")
def test_no_spreadsheet_runs_what_another_user_wrote(begin: str) -> None:
    assert cell(f"{begin}cmd|'/c calc'!A1") == f"'{begin}cmd|'/c calc'!A1"
    assert cell("-1e-3") == "-1e-3", "a number is no formula"
    [_, line] = csv_lines({f"{begin}name": [f"{begin}1+1"]})
    assert next(csv.reader(io.StringIO(line))) == [f"'{begin}1+1"]


def test_parquet_keeps_numbers_as_they_are_and_mixed_values_as_text(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is needed: pip install 'tenuto[frames]'")
    trials, training, validation = (parquet.read_table(path) for path in write_tables(Experiment(), tmp_path, "parquet"))
    assert trials.column("hyperparameters.lr").to_pylist() == ["0.1", "auto"]
    assert trials.column("best_metric").to_pylist() == [0.1 + 0.2, None]
    assert training.column("trial").to_pylist() == [1, 2**62]
    assert training.column("loss").to_pylist()[0] == 1 / 3
    assert validation.num_rows == 0


def test_numbers_that_json_has_as_texts_are_numbers_and_large_ones_keep_their_digits(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is needed: pip install 'tenuto[frames]'")
    hyperparameters: list[dict[str, Any]] = [
        {"big": 2**64, "near": 2**53 + 1, "huge": 10**400, "flag": True},
        {"big": -1, "near": 0.5, "huge": 0.5, "flag": None},
        {"big": None, "near": None, "huge": None, "flag": False},
    ]
    metrics = [0.25, "NaN", "-Infinity"]
    rows = [{"latest_metric": metric, "hyperparameters": found} for metric, found in zip(metrics, hyperparameters, strict=True)]
    experiment: Any = Experiment()
    experiment.trials = lambda: of_rows(rows)
    trials = parquet.read_table(write_tables(experiment, tmp_path, "parquet")[0])
    latest = trials.column("latest_metric").to_pylist()
    assert (latest[0], math.isnan(latest[1]), latest[2]) == (0.25, True, -math.inf)
    assert trials.column("hyperparameters.big").to_pylist() == [str(2**64), "-1", None]
    assert trials.column("hyperparameters.near").to_pylist() == [str(2**53 + 1), "0.5", None]
    assert trials.column("hyperparameters.huge").to_pylist() == [str(10**400), "0.5", None]
    assert trials.column("hyperparameters.flag").to_pylist() == [True, None, False]
    with write_tables(experiment, tmp_path, "csv")[0].open(newline="") as file:
        assert [row["latest_metric"] for row in csv.DictReader(file)] == ["0.25", "", "-inf"]


def test_a_file_that_was_there_stays_whole_until_it_is_replaced(tmp_path: Path) -> None:
    write_tables(Experiment(), tmp_path, "csv")
    before = (tmp_path / "training.csv").read_bytes()

    def broken(kind: str) -> Any:
        raise CliError("the gateway is gone")

    experiment: Any = Experiment()
    experiment.metrics = broken
    with pytest.raises(CliError, match="gone"):
        write_tables(experiment, tmp_path, "csv")
    assert (tmp_path / "training.csv").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["training.csv", "trials.csv", "validation.csv"]
    (tmp_path / "file").write_text("")
    with pytest.raises(CliError, match="cannot be written"):
        write_tables(Experiment(), tmp_path / "file" / "below", "csv")
