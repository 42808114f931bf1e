"""Imported by each Python in a container at its start: Tenuto's packages come after those of the image, so that the image's own
framework, and what it was built with, are kept."""

import importlib.machinery
import importlib.util
import os
import sys


def _extend() -> None:
    packages = os.environ.get("TENUTO_PACKAGES", "")
    if f"-python{sys.version_info[0]}.{sys.version_info[1]}-" in packages and os.path.isdir(packages):
        sys.path.append(packages)


def _run_of_image() -> None:
    """Runs the module of this name that the image itself has, which this one hides."""
    own = os.path.dirname(__file__)
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", [path for path in sys.path if path != own])
    if found is not None and found.loader is not None:
        found.loader.exec_module(importlib.util.module_from_spec(found))


_extend()
_run_of_image()
