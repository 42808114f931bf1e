"""The scripts of docs/search.md that use tenuto.run_search, where no cluster is up: one is started, and left running."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.live_cluster import LiveCluster

PAGE = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
BLOCKS = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SECONDS_MAX = 240.0


def test_a_search_of_a_few_lines(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path / "data")
    names = ("TENUTO_URL", "TENUTO_TOKEN", "TENUTO_TOKEN_FILE")
    environment = {name: value for name, value in cluster.environment.items() if name not in names}

    def ran(file: str) -> list[str]:
        (tmp_path / file).write_text(BLOCKS[file])
        done = subprocess.run(
            [sys.executable, file],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    try:
        said = ran("quick.py")
        assert said[0] == "No cluster is up on this machine, so one is started."
        assert said[1].endswith(f"(data: {tmp_path / 'data'}); it is left running, and `tenuto down` stops it.")
        assert said[2] == "Experiment 1 searches; `tenuto exp describe 1` shows it."
        x, distance = map(float, said[3].split())
        assert distance in ((x - 3.0) ** 2, (x - 3.0) ** 2 + 1.0)
        assert len(cluster.json("exp", "ls")) == 1, "it is still up"
        said = ran("longer.py")
        assert said[0] == "Experiment 2 searches; `tenuto exp describe 2` shows it."
        assert 0 < float(said[1]) <= 1.0
        trials = cluster.client().get("/experiments/2/trials")
        assert len(trials) == 3
        assert {trial["state"] for trial in trials} <= {"completed", "early_stopped"}
    finally:
        cluster.down()
    assert os.listdir(tmp_path / "data")
