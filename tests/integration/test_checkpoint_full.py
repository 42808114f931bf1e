"""A script whose checkpoint store is full, and one that is at fault itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.core_api_scripts import fail, script
from tests.support.reactions import stop_at

LIBRARY = """
import tenuto
with tenuto.init() as run:
    run.epoch_batches = 10
    for step in (4, 10):
        with run.checkpoint.save(step) as directory:
            try:
                (directory / "weights").write_bytes(bytes(6 << 20))
            except OSError:
                raise RuntimeError("[enforce fail] file write failed") from None  # as torch.save tells it
        print("goes on after", step, flush=True)
    run.report_validation(10, {"total": 1.0})
"""


def test_a_full_store_is_told_and_training_goes_on_whatever_a_library_raises(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", store], capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        with script(tmp_path, LIBRARY) as trial:
            trial.checkpoint_directory = store / "checkpoints"
            agent = trial.agent(1)
            agent.react = stop_at(1)
            run = trial.start(agent)
            assert run.wait() == 0, run.output()
            assert agent.checkpoints() == []
            assert agent.validations()[-1].metrics == {"total": 1.0}
            assert "the checkpoint at step 4 could not be written ([Errno 28] No space left on device" in run.output()
            assert "goes on after 10" in run.output()
    finally:
        subprocess.run(["umount", "-l", store], check=True)


def test_an_error_of_the_script_while_it_saves_stays_one(tmp_path: Path) -> None:
    with script(tmp_path, LIBRARY.replace("bytes(6 << 20)", "no_such_name")) as trial:
        assert "NameError" in fail(trial, trial.agent(1)).splitlines()[0]
