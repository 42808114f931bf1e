"""The example of docs/local.md does what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "local.md").read_text()
TENUTO = Path(sys.executable).with_name("tenuto")
SECONDS_MAX = 240


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(.*?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def run(here: Path, *command: str | Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
    done = subprocess.run(
        command,
        cwd=here,
        env={**clean, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_is_tested_and_trained(tmp_path: Path) -> None:
    model, notebook = blocks("python")
    (tmp_path / "model_def.py").write_text(model)
    (tmp_path / "config.yaml").write_text(blocks("yaml")[0])
    commands, printed = blocks("")[:2]
    lines = [line.partition("#")[0].split() for line in commands.splitlines()]
    assert [words[:4] for words in lines] == [["tenuto", "exp", "create", "--local"]] * 3
    said = run(tmp_path, TENUTO, *lines[2][1:])

    def words(text: str) -> list[str]:
        return [re.sub(r"[\d.]+ kB|/\S+|error [\d.]+|\d+ files", "...", line) for line in text.splitlines()]

    assert words(said) == words(printed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "model_def.py"], "a test leaves nothing behind"

    (tmp_path / "notebook.py").write_text(notebook)
    validation, *_, directory = run(tmp_path, sys.executable, "notebook.py").splitlines()
    assert validation.startswith("{'batches': 64, 'error': 0.")
    assert directory == str(tmp_path / "tenuto-runs" / "line-1")
