"""Parts of the Keras and TensorFlow support that can be checked without importing either."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tenuto.workers.errors import describe

TRACING = """in user code:

    File "{root}/model_def.py", line 4, in augmented  *
        return tf.reshape(x, (3, 5))

    ValueError: Cannot reshape a tensor with 1 elements to shape [3,5]
"""
RUNNING = """Graph execution error:

Detected at node m_1/GatherV2 defined at (most recent call last):
  File "{root}/model_def.py", line 40, in train_step

  File "/site-packages/keras/src/layers/layer.py", line 1002, in __call__

  File "{root}/model_def.py", line 17, in call

indices[0] = 100 is not in [0, 2)
\t [[{{{{node m_1/GatherV2}}}}]] [Op:__inference_one_step_on_data_285]"""


def test_errors_of_tensorflows_graphs_are_told_with_the_users_line(tmp_path: Path) -> None:
    tracing, running = (describe(ValueError(text.format(root=tmp_path)), tmp_path) for text in (TRACING, RUNNING))
    assert tracing.startswith("model_def.py:4: ValueError: Cannot reshape a tensor with 1 elements to shape [3,5]\n")
    assert running.startswith("model_def.py:17: ValueError: indices[0] = 100 is not in [0, 2)\n")


def test_frameworks_are_imported_by_the_users_code_alone() -> None:
    """Importing the APIs, and the harness with them, must not cost anybody a framework that is not used."""
    code = (
        "import sys, tenuto.keras, tenuto.workers.harness.main, tenuto.workers.horovod.rendezvous, tenuto.workers.keras.cluster; "
    )
    code += "print(sorted({'keras', 'tensorflow', 'torch', 'horovod'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
