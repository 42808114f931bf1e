"""The Core API: `tenuto.init()` connects a training script of any kind to the cluster.

Without a cluster the same script keeps a record of its own on disk (`local.py`).
"""

from tenuto.workers.core_api.checkpoints import Checkpoints
from tenuto.workers.core_api.operations import Operation
from tenuto.workers.core_api.run import Run
from tenuto.workers.core_api.script_checkpoints import Checkpoint
from tenuto.workers.core_api.start import init

__all__ = ["Checkpoint", "Checkpoints", "Operation", "Run", "init"]
