"""Prediction from its code of the framework that a run will import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto.workers.harness.frameworks import framework_of

KERAS = "import numpy\nimport keras\n"
TORCH = "import torch\n# import keras\n"


@pytest.mark.parametrize(
    ("files", "entrypoint", "variables", "expected"),
    [
        ({"model_def.py": KERAS}, "model_def:Trial", {}, "tensorflow"),
        ({"model_def.py": KERAS}, "model_def:Trial", {"KERAS_BACKEND": "torch"}, "keras on torch"),
        ({"model_def.py": KERAS}, "model_def:Trial", {"KERAS_BACKEND": "jax"}, "torch"),
        ({"model_def.py": TORCH}, "model_def:Trial", {}, "torch"),
        ({"model_def.py": "from tenuto.keras import KerasTrial\n"}, "model_def:Trial", {}, "tensorflow"),
        ({"a/b.py": "if True:\n    from tensorflow import data\n"}, "a.b:Trial", {}, "tensorflow"),
        ({"train.py": KERAS}, "python train.py --fast", {}, "tensorflow"),
        ({"a/train.py": KERAS}, "python -m a.train", {}, "tensorflow"),
        ({"train.py": KERAS, "first.py": "os.environ['TF_NUM_THREADS'] = '1'\n"}, "train.py", {}, "torch"),
        ({"train.py": KERAS, "first.py": "print(os.environ['RANK'])\n"}, "train.py", {}, "tensorflow"),
        ({}, "model_def:Trial", {}, "torch"),
        ({"model_def.py": KERAS}, "", {}, "torch"),
    ],
)
def test_the_framework_is_that_of_the_entrypoint(
    tmp_path: Path, files: dict[str, str], entrypoint: str, variables: dict[str, str], expected: str
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert framework_of(entrypoint, tmp_path, variables) == expected
