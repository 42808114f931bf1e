"""The script in docs/core-api.md does what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import tenuto
from tenuto.schemas.reports import CheckpointReport, ValidationReport
from tenuto.workers.core_api import Run
from tenuto.workers.core_api.local_record import read_lines

PAGE = (Path(__file__).parents[2] / "docs" / "core-api.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_script_trains_without_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(block("yaml"))
    (tmp_path / "train.py").write_text(block("python"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("tenuto: no cluster here: the record of this run is kept in ")
    bodies = [line.body for line in read_lines(tmp_path / "tenuto-runs" / "line-1")]
    (validation,) = [body for body in bodies if isinstance(body, ValidationReport)]
    assert validation.batches == 100
    assert validation.metrics["loss"] < 0.2
    assert [body.batches for body in bodies if isinstance(body, CheckpointReport)] == [25, 50, 75, 100]


def test_every_name_of_the_reference_exists() -> None:
    table = PAGE[PAGE.index("## Reference") : PAGE.index("A step is one batch")]
    names = set(re.findall(r"`run\.(\w+)", table))
    assert len(names) > 15
    made_by_init = Run.__init__.__code__.co_names
    assert [name for name in sorted(names) if not hasattr(Run, name) and name not in made_by_init] == []
    assert tenuto.Run is Run
