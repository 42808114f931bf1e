"""MLflow's clients of other versions than the one that is installed, each in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.real_parts import lacks

CLIENTS = Path(sys.prefix) / "clients"
"""With the virtual environment: made once, and gone with it."""
INSTALL_SECONDS_MAX = 120.0
"""7 MB from a mirror nearby take some seconds."""
MLFLOW_2 = "2.22.5"
NEEDS = {MLFLOW_2: ("protobuf==6.33.6",)}
"""What it needs in another version than is installed here; all else that it imports is here already."""


def client_paths(version: str) -> list[str]:
    """What is put before PYTHONPATH for this version; empty for "installed". Skips the test where it cannot be had here, or fails
    it where real parts are required."""
    if version == "installed":
        return []
    folder = CLIENTS / f"mlflow-skinny-{version}"
    if not (folder / "mlflow").is_dir():
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check"]
        try:
            done = subprocess.run(
                [*install, "--target", str(folder), f"mlflow-skinny=={version}", *NEEDS.get(version, ())],
                capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            lacks(f"MLflow's client {version} did not come from the package registry within {INSTALL_SECONDS_MAX:.0f} s.")
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            shutil.rmtree(folder, ignore_errors=True)
            lacks(f"MLflow's client {version} cannot be had from a package registry here ({last}).")
    return [str(folder)]


def environment(version: str, **more: str) -> dict[str, str]:
    """Of a program that is to import this version."""
    paths = [*client_paths(version), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", **more}
