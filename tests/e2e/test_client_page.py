"""docs/client.md: every example of the page runs as it stands, in order, on a real cluster; and what comes out is right."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from tenuto.client import Client, ClientError, Experiment, NotCompleted, Refused, TimedOut
from tests.support.live_cluster import LiveCluster

pytest.importorskip("pandas", reason="the page makes data frames: pip install 'tenuto[frames]'")
pytest.importorskip("pyarrow", reason="the page makes tables of Arrow: pip install 'tenuto[frames]'")
PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
BLOCKS = re.findall(r"^```python( file=\S+)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with tempfile.TemporaryDirectory(prefix="tenuto-client-") as directory, LiveCluster(Path(directory) / "data") as running:
        yield running


@pytest.fixture(scope="module")
def page(cluster: LiveCluster) -> dict[str, Any]:
    """The names that the page's examples leave behind."""
    names: dict[str, Any] = {"__name__": "page", "said": []}
    with contextlib.chdir(cluster.directory.parent), pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENUTO_DATA_DIRECTORY", str(cluster.directory))
        for name in ("TENUTO_URL", "TENUTO_TOKEN", "TENUTO_TOKEN_FILE"):
            patch.delenv(name, raising=False)
        for file, code in BLOCKS:
            if file:
                path = Path(file.removeprefix(" file="))
                path.parent.mkdir(exist_ok=True)
                path.write_text(code)
                continue
            if "curves" in code:
                cluster.once(names["experiment"].metrics, lambda table: {1, 2} == set(table.columns["trial"].tolist()))
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, "docs/client.md", "exec"), names)
            names["said"].append(printed.getvalue())
    return names


def test_the_examples_do_what_the_page_says(cluster: LiveCluster, page: dict[str, Any]) -> None:
    assert len(BLOCKS) == 11
    experiment: Experiment = page["experiment"]
    assert page["state"] == "completed"
    trials, curves, results = page["trials"], page["curves"], page["results"]
    assert list(trials["id"]) == [f"{experiment.id}-1", f"{experiment.id}-2"]
    assert trials["hyperparameters.learning_rate"].between(0.1, 0.51).all()
    assert set(curves["trial"]) == {1, 2}
    assert curves["error"].dtype == numpy.float64
    assert results.column("length").to_pylist() == [200, 200]
    assert page["best"].best_metric == min(results.column("loss").to_pylist())
    assert abs(float(page["weights"]["slope"][0]) - 3) < 1
    assert (cluster.directory.parent / page["directory"] / "model.safetensors").is_file()
    assert "done" in cluster.once(lambda: list(experiment.logs()), lambda lines: "done" in lines)
    assert page["repeated"].reproduction()["equal"] is True
    assert page["said"][4] == "1 <div><b>Trial 1-1</b\n".replace("1-1", page["best"].id)
    assert "searcher.max_trials" in page["said"][5]
    assert page["position"] > 1
    assert "invalid 400" in page["said"][-1]


def test_how_a_wait_ends(cluster: LiveCluster, page: dict[str, Any]) -> None:
    client = Client(data_dir=str(cluster.directory))
    config = {
        "name": "long",
        "entrypoint": "train.py",
        "hyperparameters": {"learning_rate": 0.1},
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 10**9}},
    }
    long = client.create_experiment(config, cluster.directory.parent / "model")
    with pytest.raises(TimedOut, match=f"Experiment {long.id} has not ended within 0.5 s; it goes on."):
        long.wait(timeout_seconds=0.5)
    done = cluster.cli("exp", "wait", str(long.id), "--timeout", "0.5", check=False)
    assert (done.returncode, done.stderr) == (4, f"Error: Experiment {long.id} has not ended within 0.5 s; it goes on.\n")
    long.kill()
    with pytest.raises(NotCompleted) as ended:
        long.wait(timeout_seconds=240)
    assert ended.value.state == "canceled"
    assert long.wait(check=False) == "canceled"
    assert cluster.cli("exp", "wait", str(long.id), check=False).returncode == 2
    assert cluster.cli("exp", "wait", str(page["experiment"].id), check=False).returncode == 0
    assert cluster.cli("exp", "wait", "999", check=False).returncode == 1
    with pytest.raises(Refused, match="has no checkpoint yet"):
        long.best_checkpoint()


def test_files_are_refused_where_there_is_something_already(cluster: LiveCluster, page: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match="exists already"):
        page["best"].best_checkpoint().download(cluster.directory.parent / page["directory"])
    with pytest.raises(ClientError, match=r"has no model_3.safetensors \(its files: model.safetensors"):
        page["best"].best_checkpoint().load(3)
    assert page["client"].get_checkpoint(page["best"].latest_checkpoint().id).trial_id == page["best"].id
