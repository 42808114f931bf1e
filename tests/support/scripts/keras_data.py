"""Reads training data of every kind: in one go, and saved at a place, opened anew and gone on with. Prints as JSON the kinds that
gave other batches then: none should."""

from __future__ import annotations

import importlib.util
import json
import pickle
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np

from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.keras import randomness
from tenuto.workers.keras.backends import open_backend
from tenuto.workers.keras.batches import Batches, BatchesPosition
from tenuto.workers.keras.data import training_batches

TRIAL = Path(__file__).parents[1] / "trials" / "keras_everything" / "model_def.py"
SEED, END, BATCH_SIZE = 5, 27, 8
CUTS = (4, 6, 7, 13)
"""Within an epoch of 6 batches, at its end, after it, in the third."""


def load_trial() -> ModuleType:
    spec = importlib.util.spec_from_file_location("model_def", TRIAL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["model_def"] = module  # where TensorFlow looks for the source of functions
    spec.loader.exec_module(module)
    return module


def opened(trial: ModuleType, kind: str) -> Batches:
    randomness.seed_everything(SEED)

    def build() -> Any:
        return trial.training_data(kind)

    with randomness.building(SEED):
        data = build()
    return training_batches(data, build, seed=SEED, batch_size=BATCH_SIZE, shuffle=True, epoch_batches=None)


def read(batches: Batches, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        random.random(), np.random.rand()  # a training draws, too, and is saved and restored apart from its data
        found.append(b"".join(np.asarray(leaf).tobytes() for leaf in keras.tree.flatten(batches.next_batch())))
    return found


def differs(trial: ModuleType, kind: str) -> bool:
    whole = opened(trial, kind)
    whole.seek(0, None)
    expected = read(whole, END)
    if len(set(expected)) < END:
        return True  # epochs, and batches within them, are to differ
    for cut in CUTS:
        first = opened(trial, kind)
        first.seek(0, None)
        read(first, cut)
        place: BatchesPosition = pickle.loads(pickle.dumps(first.place()))
        second = opened(trial, kind)
        second.seek(cut, place)
        if read(second, END - cut) != expected[cut:]:
            return True
        first.close()
        second.close()
    return False


if __name__ == "__main__":
    open_backend(TrialInfo(1, "1-1", 1, SEED, {}, {}), True, print)
    module = load_trial()
    print(json.dumps([kind for kind in sys.argv[1:] if differs(module, kind)]))
