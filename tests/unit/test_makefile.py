"""Packages that each target of the Makefile installs, read from a dry run in a fresh copy."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def plan(directory: Path, target: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    found = subprocess.run(["make", "-n", target], cwd=directory, env=environment, capture_output=True, text=True, check=True)
    return found.stdout


def test_the_demo_installs_what_it_needs_and_tests_install_the_rest_after_it(fresh: Path) -> None:
    demo = plan(fresh, "demo")
    assert "-e '.[demo]'" in demo
    assert "-m venv" in demo
    assert ".[dev]" not in demo
    (fresh / ".venv/bin").mkdir(parents=True)
    (fresh / ".venv/bin/python").touch()
    (fresh / ".venv/.installed-demo").touch()
    assert "pip install" not in plan(fresh, "demo")
    assert "-e '.[dev]'" in plan(fresh, "test")
    (fresh / ".venv/.installed").touch()
    assert "pip install" not in plan(fresh, "test") + plan(fresh, "demo")


def test_the_demo_needs_no_framework_but_the_one_it_trains_with() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["demo"] == ["tenuto[torch,notices,sso,examples,page]"]
    needed = [name for extra in ("torch", "notices", "sso", "examples", "page") for name in extras[extra]]
    assert not any(name.startswith(("tensorflow", "keras", "transformers", "lightning", "pytest")) for name in needed)


def test_system_packages_are_no_error_where_they_cannot_be_installed(tmp_path: Path) -> None:
    """Without apt, without root, and where the mirror cannot be reached."""
    tools = {"apt-get": "exit 100", "id": "echo 0", "dpkg-query": "exit 1"}

    def said(**changed: str | None) -> str:
        shutil.rmtree(tmp_path / "bin", ignore_errors=True)
        (tmp_path / "bin").mkdir()
        for name, script in ({**tools, **{name.replace("_", "-"): text for name, text in changed.items()}}).items():
            if script is not None:
                (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
                (tmp_path / "bin" / name).chmod(0o755)
        script = ROOT / "deploy" / "system-packages.sh"
        done = subprocess.run(
            ["/bin/sh", script], env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True, check=True
        )
        [line] = done.stdout.splitlines()
        return line

    assert said(apt_get=None).startswith("There is no apt-get here")
    assert said(id="echo 1000").startswith("Only root may install")
    assert said().startswith("Not all of these could be installed")
    packages = "chromium-headless-shell docker.io iptables slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurmrestd"
    packages += " slurm-wlm-jwt-plugin munge openssh-server docker-registry"
    assert said(apt_get="exit 0") == f"Installed: {packages}"
    assert said(dpkg_query="echo -n installed").startswith("All system packages are installed")
