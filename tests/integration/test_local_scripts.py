"""Scripts in the foreground that know nothing of Tenuto."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_local_runs import create


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
