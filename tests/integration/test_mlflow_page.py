"""docs/mlflow.md: every Python example of the page runs as it stands, in order, with MLflow's own client and a real gateway."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.mlflow_world import do, mlflow_world

pytest.importorskip("mlflow", reason="MLflow's client is needed: pip install 'tenuto[mlflow]'")

PAGE = (Path(__file__).parents[2] / "docs" / "mlflow.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run_page() -> tuple[str, dict[str, Any]]:
    """What the examples print, and the names that they leave behind."""
    names: dict[str, Any] = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for code in BLOCKS:
            exec(compile(code, "docs/mlflow.md", "exec"), names)
    return printed.getvalue(), names


async def test_the_examples_do_what_the_page_says(database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(BLOCKS) == 3
    async with mlflow_world(database, tmp_path) as world:
        monkeypatch.setenv("TENUTO_URL", f"http://127.0.0.1:{world.service.port}")
        monkeypatch.setenv("TENUTO_TOKEN_FILE", str(tmp_path / "token"))
        said, names = await do(run_page)
        assert names["run"].info.run_id == "1-1"
        assert "{'layers': 3, 'lr': 0.1} completed 0.1" in said
        assert "first try 0.1" in said
        assert "as in the paper" in said
