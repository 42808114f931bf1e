"""The package of examples/plug-ins, installed by pip into a directory of its own."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenuto.kernel import plugins

SOURCE = Path(__file__).parents[2] / "examples" / "plug-ins"
PACKAGE = "tenuto-example-plugins"


def install(directory: Path, source: Path = SOURCE) -> Path:
    """Builds and installs the package; returns the directory that has to be on the path of a Python that is to have it."""
    copy, target = directory / "source", directory / "installed"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps",
         "--no-build-isolation", "--target", target, copy],
        check=True,
        timeout=300,
    )  # fmt: skip
    return target


def environment(target: Path) -> dict[str, str]:
    """Environment variables of a process that has the package, beside what it has anyway."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(target), os.environ.get("PYTHONPATH", ""))))}


@contextmanager
def importable(target: Path) -> Iterator[None]:
    """This process has the package meanwhile."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(target)
            _forget()
            yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE.replace("-", "_")]:
            del sys.modules[name]
        _forget()


def _forget() -> None:
    importlib.invalidate_caches()
    for cached in (plugins.declared, plugins.find, plugins.load):
        cached.cache_clear()


@pytest.fixture(scope="session")
def example_plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory where it is installed: for `environment` and `importable`."""
    return install(tmp_path_factory.mktemp("plug-ins"))
