"""A user's file with rules, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from tenuto.automation.app import App, app_of
from tenuto.client.errors import ClientError


def load(file: Path, wanted: str | None = None) -> App:
    """App of the file. Modules beside the file can be imported. Raises ClientError."""
    path = file.absolute()
    if not path.is_file():
        raise ClientError(f"{file} is no file: give the Python file with your rules.")
    name = f"tenuto_rules_{path.stem}" if not path.stem.isidentifier() or path.stem in sys.modules else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ClientError(f"{file} is no Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
        return app_of(vars(module), wanted)
    except ValueError as error:
        raise ClientError(f"{file} {error}.") from error
    except Exception as error:
        raise ClientError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
