"""Scripts that end by themselves, too early or by a bug, in a real cluster: each end is told, and none is tried for ever."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_cluster import LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with tempfile.TemporaryDirectory(prefix="tenuto-ends-") as directory, LiveCluster(Path(directory)) as cluster:
        yield cluster


BARE = """\
name: ends the process by itself
entrypoint: train.py
hyperparameters: {{code: {code}}}
searcher: {{name: single, metric: total, max_length: {{epochs: 3}}}}
resources: {{slots_per_trial: {slots}}}
"""


@pytest.mark.parametrize(("code", "slots"), [(80, 1), (81, 1), (137, 1), (80, 2)])
def test_a_program_that_ends_by_itself_with_any_code_has_failed_after_two_runs(
    cluster: LiveCluster, tmp_path: Path, code: int, slots: int
) -> None:
    (tmp_path / "config.yaml").write_text(BARE.format(code=code, slots=slots))
    (tmp_path / "train.py").write_text(
        "import os, tenuto\nwith tenuto.init() as run:\n    os._exit(run.hyperparameters['code'])\n"
    )
    experiment = cluster.json("exp", "create", tmp_path / "config.yaml", tmp_path)["id"]
    cluster.wait_for(lambda: cluster.json("exp", "describe", str(experiment))["state"] == "failed")
    [trial] = cluster.json("exp", "describe", str(experiment))["trial_list"]
    assert trial["failures"] == 2
    assert f"exited with code {code}, and told nothing of its end" in trial["error"]
    assert "the same error twice without progress" in trial["error"].partition("\n")[0]


KILLED = {
    "SIGABRT": "import os\nos.abort()\n",
    "SIGSEGV": "import ctypes\nctypes.string_at(0)\n",
}
"""How a program of a user's dies by a bug in native code, which no handler of Python's sees."""


@pytest.mark.parametrize("name", KILLED)
def test_a_program_that_dies_of_itself_in_native_code_has_failed_after_two_runs(
    cluster: LiveCluster, tmp_path: Path, name: str
) -> None:
    (tmp_path / "config.yaml").write_text(BARE.format(code=0, slots=1))
    (tmp_path / "train.py").write_text(f"import tenuto\nrun = tenuto.init()\n{KILLED[name]}")
    experiment = cluster.json("exp", "create", tmp_path / "config.yaml", tmp_path)["id"]
    cluster.wait_for(lambda: cluster.json("exp", "describe", str(experiment))["state"] == "failed")
    [trial] = cluster.json("exp", "describe", str(experiment))["trial_list"]
    assert trial["allocations"] == 2
    head = trial["error"].partition("\n")[0]
    assert f"({name}" in head
    assert "the same error twice without progress" in head


@pytest.mark.parametrize("slots", [1, 2])
def test_a_script_that_calls_no_api_is_complete(cluster: LiveCluster, tmp_path: Path, slots: int) -> None:
    (tmp_path / "config.yaml").write_text(BARE.format(code=0, slots=slots))
    (tmp_path / "train.py").write_text("print('it trains')\n")
    experiment = cluster.json("exp", "create", tmp_path / "config.yaml", tmp_path)["id"]
    cluster.cli("exp", "wait", str(experiment))
    view = cluster.json("exp", "describe", str(experiment))
    assert (view["state"], view["trials"], view["best_trial_id"]) == ("completed", {"completed": 1}, None)
    [trial] = view["trial_list"]
    assert (trial["failures"], trial["allocations"]) == (0, 1)
    assert "train.py ended without calling tenuto.init()" in trial["reason"]
    cluster.cli("exp", "replay", str(experiment), "--verify")


def test_a_script_that_ends_too_early_is_told_so(cluster: LiveCluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tenuto\nrun = tenuto.init()\nrun.report_training(3, {'loss': 1})\n")
    (tmp_path / "config.yaml").write_text(
        "name: early\nentrypoint: train.py\nmax_restarts: 0\nsearcher: {name: single, metric: loss, max_length: {batches: 10}}\n"
    )
    experiment = cluster.json("exp", "create", tmp_path / "config.yaml", tmp_path)["id"]
    done = cluster.cli("exp", "wait", str(experiment), check=False)
    assert done.returncode == 2
    assert "train.py ended at step 3 of 10, without a validation: the search waits for 'loss'." in " ".join(done.stderr.split())
