"""A script that never calls `tenuto.init()` is told so while it runs, not when it ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tenuto.schemas.config.entrypoint import script_of
from tenuto.workers.core_api import script as scripts

SCRIPT = script_of("train.py")
assert SCRIPT is not None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"train.py": "import torch"}, False),
        ({"train.py": "import helpers", "helpers/deep/run.py": "import tenuto"}, True),
        ({"train.py": "x", ".git/hook.py": "import tenuto", "README.md": "tenuto"}, False),
        ({}, False),
    ],
)
def test_files_that_could_call_it_are_found(tmp_path: Path, files: dict[str, str], expected: bool) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert scripts.mentions_tenuto(tmp_path) is expected


def test_more_files_than_are_looked_at_tell_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "FILES_MAX", 2)
    for number in range(3):
        (tmp_path / f"{number}.py").write_text("")
    assert scripts.mentions_tenuto(tmp_path)


def test_reminders_come_at_once_and_then_ever_more_seldom_until_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SCRIPT is not None
    (tmp_path / "train.py").write_text("import torch")
    said: list[str] = []
    waits: list[float] = []

    class Begun(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            return len(waits) > 8

    monkeypatch.setattr(scripts, "say", said.append)
    scripts._remind(SCRIPT, tmp_path, Begun())
    assert said[0].startswith(
        "warning: no Python file of the model directory mentions tenuto, and before train.py calls tenuto.init(),"
    )
    assert said[1].startswith("warning: train.py runs for 60 s without having called tenuto.init(): ")
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert len(said) == 9

    said.clear()
    (tmp_path / "train.py").write_text("import tenuto")
    called = threading.Event()
    called.set()
    scripts._remind(SCRIPT, tmp_path, called)
    assert said == []
