"""The installed package: one version number, types for those who import it, and no code that only tests use."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import tenuto
from tenuto.version import __version__
from tests.support.import_graph import ROOT, imported, modules

HOST = "tenuto.services.launcher.adapters.provisioners.ssh.host"
CHECKED = "tenuto.checking.model.model_def"
ENTRIES = {
    "tenuto.cli.main", "tenuto.embedded.detached", HOST, f"{HOST}_files", f"{HOST}_install", "tenuto.automation.reader", CHECKED,
}  # fmt: skip
"""Modules started by name, sent to other machines, packed as a model, or imported by applications of FastStream; besides every
`__main__`, and the modules of the top that users import."""
DECLARED = {
    value.partition(":")[0]
    for entries in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"].values()
    for value in entries.values()
}
"""Modules found by the name of an entry point."""
PUBLIC = re.compile(r"tenuto(\.[a-z_]+)?")
NAMED = re.compile(r"[\"'](tenuto\.[a-z_.]+)[:\"']")
"""A module that is imported or started by its name."""


def unreached() -> list[str]:
    """Modules that nothing leads to of what users import and start."""
    known = modules()
    found: set[str] = set()
    waiting = [name for name in known if name in ENTRIES | DECLARED or name.endswith(".__main__") or PUBLIC.fullmatch(name)]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        source = known[name].read_text()
        parts = name.split(".")
        packages = {".".join(parts[:count]) for count in range(1, len(parts))}
        waiting += {*imported(ast.parse(source), set(known)), *NAMED.findall(source), *packages} & set(known)
    return sorted(set(known) - found)


def test_no_code_is_installed_that_only_tests_use() -> None:
    assert unreached() == []


def test_there_is_one_version_number() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]
    assert version("tenuto") == __version__ == tenuto.__version__


def test_types_are_installed() -> None:
    assert (ROOT / "src/tenuto/py.typed").is_file()


def test_a_checkout_without_symbolic_links_says_so(tmp_path: Path) -> None:
    package = tmp_path / "tenuto"
    package.mkdir()
    for name in ("__init__.py", "version.py"):
        shutil.copy(ROOT / "src/tenuto" / name, package)
    command = [sys.executable, "-c", "import tenuto; print(tenuto.__version__)"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout.strip() == __version__
    for name in ("schemas", "services", "workers"):
        (package / name).write_text(f"../../{name}")  # as git leaves it
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert f"no symbolic links ({package}/{name} is a file): run `git config core.symlinks true" in done.stderr
        (package / name).unlink()
