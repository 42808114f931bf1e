"""Prediction from its code of the framework that a run will import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.kernel import plugins
from tenuto.workers.harness import frameworks
from tenuto.workers.harness.frameworks import FRAMEWORK_VARIABLE, NONE, framework_of, preloaded

KERAS = "import numpy\nimport keras\n"
TORCH = "import torch\n# import keras\n"
TENSORFLOW, KERAS_ON_TORCH = ("keras", {"keras", "tensorflow"}), ("keras", {"torch._dynamo", "keras"})
TORCH_ALONE = ("pytorch", {"torch._dynamo"})


@pytest.mark.parametrize(
    ("files", "entrypoint", "variables", "expected"),
    [
        ({"model_def.py": KERAS}, "model_def:Trial", {}, TENSORFLOW),
        ({"model_def.py": KERAS}, "model_def:Trial", {"KERAS_BACKEND": "torch"}, KERAS_ON_TORCH),
        ({"model_def.py": KERAS}, "model_def:Trial", {"KERAS_BACKEND": "jax"}, TORCH_ALONE),
        ({"model_def.py": TORCH}, "model_def:Trial", {}, TORCH_ALONE),
        ({"model_def.py": "from tenuto.keras import KerasTrial\n"}, "model_def:Trial", {}, TENSORFLOW),
        ({"a/b.py": "if True:\n    from tensorflow import data\n"}, "a.b:Trial", {}, TENSORFLOW),
        ({"train.py": KERAS}, "python train.py --fast", {}, TENSORFLOW),
        ({"a/train.py": KERAS}, "python -m a.train", {}, TENSORFLOW),
        ({"train.py": KERAS, "first.py": "os.environ['TF_NUM_THREADS'] = '1'\n"}, "train.py", {}, TORCH_ALONE),
        ({"train.py": KERAS, "first.py": "print(os.environ['RANK'])\n"}, "train.py", {}, TENSORFLOW),
        ({}, "model_def:Trial", {}, TORCH_ALONE),
        ({"model_def.py": KERAS}, "", {}, TORCH_ALONE),
    ],
)
def test_the_framework_is_that_of_the_entrypoint(
    tmp_path: Path, files: dict[str, str], entrypoint: str, variables: dict[str, str], expected: tuple[str, set[str]]
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    name = framework_of(entrypoint, tmp_path, variables)
    modules = preloaded({**variables, FRAMEWORK_VARIABLE: name})
    assert (name, set(modules) & {"torch._dynamo", "keras", "tensorflow"}) == expected
    assert {"tenuto.workers.harness.main", "tenuto.workers.core_api.script"} <= set(modules)


def test_a_program_that_is_not_ours_imports_nothing() -> None:
    assert preloaded({FRAMEWORK_VARIABLE: NONE}) == ()


def test_the_names_of_frameworks_are_read_without_their_libraries() -> None:
    """By agents, and by every worker: libraries take seconds, and half a gigabyte of memory."""
    program = (
        "import sys; from tenuto.workers.harness.frameworks import every, problems, usual; "
        "print(*every(), usual(), problems(), *sorted({'torch', 'tensorflow', 'keras', 'horovod'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["determined", "horovod", "keras", "pytorch", "script", "pytorch", "()"]


def test_a_framework_that_cannot_be_imported_is_told_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "names", lambda group: ("broken", "pytorch"))
    load = plugins.load

    def loading(group: str, name: str) -> object:
        if name == "broken":
            raise ValueError("no such device")
        return load(group, name)

    monkeypatch.setattr(plugins, "load", loading)
    every, problems = frameworks._loaded.__wrapped__()
    assert list(every) == ["pytorch"]
    assert problems == ("a framework is left out: no such device",)
