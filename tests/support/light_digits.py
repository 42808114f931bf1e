"""A copy of an example that trains on scikit-learn's digits, for clusters that start many workers of it: it reads the same file
without scikit-learn, whose import takes each worker a second and a half of a processor."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

_DATASETS = '''\
"""Like scikit-learn's, from its file."""
import gzip
from types import SimpleNamespace
import numpy as np

def load_digits(*, return_X_y=False):
    with gzip.open({file!r}, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    data, target = table[:, :-1], table[:, -1].astype(int)
    return (data, target) if return_X_y else SimpleNamespace(data=data, target=target, images=data.reshape(-1, 8, 8))
'''


def copied(example: Path, directory: Path) -> Path:
    """Into a new `directory`, which is returned."""
    shutil.copytree(example, directory, ignore=shutil.ignore_patterns("__pycache__", "tenuto-runs"))
    found = importlib.util.find_spec("sklearn")
    assert found is not None
    assert found.origin is not None
    file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    assert file.exists()
    (directory / "sklearn").mkdir()
    (directory / "sklearn" / "__init__.py").touch()
    (directory / "sklearn" / "datasets.py").write_text(_DATASETS.format(file=str(file)))
    return directory
