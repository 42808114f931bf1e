"""An action right after a module's import, whenever that is."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tenuto.workers.harness.after_import import after_import
from tenuto.workers.harness.script_waits import if_known


def test_the_action_follows_the_import_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tenuto_test_imported.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tenuto_test_imported", raising=False)
    finders, seen = list(sys.meta_path), []
    after_import("tenuto_test_imported", lambda module: seen.append(("before", module.value)))
    after_import("tenuto_test_missing", lambda module: seen.append(("never", 0)))
    module = importlib.import_module("tenuto_test_imported")
    assert seen == [("before", 1)]
    after_import("tenuto_test_imported", lambda module: seen.append(("after", module.value)))
    assert seen == [("before", 1), ("after", 1)]
    importlib.reload(module)
    assert len(seen) == 2
    with pytest.raises(ImportError):
        importlib.import_module("tenuto_test_missing")
    assert sys.meta_path == finders


def test_a_library_with_other_inner_names_is_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    module = ModuleType("library")
    if_known(lambda library: library.inner_name())(module)
    assert "what ranks wait for in library is not seen in this version of it" in capfd.readouterr().err
