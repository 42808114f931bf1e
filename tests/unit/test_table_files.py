"""Tables of an experiment in files are read back as they were, by Python's csv, pandas and pyarrow."""

from __future__ import annotations

import csv
import io
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


@pytest.mark.parametrize("begin", "=+-@")
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
