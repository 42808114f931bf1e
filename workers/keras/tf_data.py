"""Batches of a tf.data.Dataset, from a position on. Tried with TensorFlow 2.21:

- Most pipelines can save their iterator (shuffle buffers, parallel maps and interleaves, caches, repeats), and go on from there
bit for bit, with the order of later epochs. The saved state contains the buffers, so a pipeline with large ones is read again
from the beginning of its epoch instead: see ITERATOR_BYTES_MAX.
- A pipeline that draws from stateful operations (tf.random.uniform in a map, a Python generator) cannot: TensorFlow does not save
their state. With a fixed seed it also repeats the same numbers in each epoch. So it is built anew for each epoch, under seeds of
that epoch, and read again up to the position. Generators of the user's that its functions draw from (those that the first element
of a pass changes) begin each pass seeded from it, too.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tenuto.workers.errors import UserError
from tenuto.workers.harness.randomness import derive_seed
from tenuto.workers.keras.batches import Batches, BatchesPosition
from tenuto.workers.keras.randomness import building
from tenuto.workers.user_state.generators import own_generators, reseed, state_of
from tenuto.workers.user_state.values import mark

ITERATOR_BYTES_MAX = 32 << 20
"""Most bytes of a saved iterator: writing more at each checkpoint would cost more than reading an epoch again when a trial
resumes."""
_NAME = "iterator"
DRAWS_FROM_ALL = (
    "functions of the tf.data pipeline of {build} (numpy_function, py_function, from_generator) draw from {names}, in threads "
    "that read ahead of the training, which draws from it, too; let them draw from a generator of the trial's own, such as "
    "self.rng = np.random.default_rng(seed), which is found again"
)
SAVED, COUNTED, REBUILT = "saved", "counted", "rebuilt"


class DatasetBatches(Batches):
    def __init__(
        self,
        dataset: Any,
        build: Callable[[], Any],
        seed: int,
        epoch_batches: int | None,
        note: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """`note`: called if the pipeline draws from generators that the training draws from, too. Raises UserError for a
        dataset without batches."""
        self._build, self._seed, self._note = build, seed, note
        self._dataset = _steady(dataset)
        known = int(dataset.cardinality())
        if known == 0:
            raise UserError(f"{build.__name__} returned a tf.data.Dataset without elements.", at=build)
        self._endless = known == tf.data.INFINITE_CARDINALITY
        self.epoch_batches = epoch_batches or (known if known > 0 else None)
        self._mode = SAVED if _can_save(self._dataset) else REBUILT
        self._passes = 0
        """Number of iterators made."""
        self._in_pass = 0
        self._iterator: Any = None
        self._candidates = _generators_of(build) if self._mode == REBUILT else []
        self._drawn: list[Any] | None = None
        """Generators that the pipeline draws from. None: no pass has begun."""

    def own_generators(self) -> list[Any]:
        return self._drawn or []

    def seek(self, batches: int, place: BatchesPosition | None) -> None:
        if place is None:
            return
        values = place.values
        self._mode, passes, in_pass = values["mode"], values["passes"], values["in_pass"]
        if passes == 0:
            return
        if self._mode == REBUILT:
            self._passes = passes - 1
        while self._passes < passes:
            self._begin_pass()  # each draws the order of a pass from the dataset's generator
        if self._mode == SAVED:
            # Restored in an iterator of a separate dataset: reading the source to its end may draw once more.
            with building(self._seed):
                self._iterator = iter(_steady(self._build()))
            _restore(self._iterator, place.files)
        else:
            for _ in range(in_pass):
                self._next()
        self._in_pass = in_pass

    def next_batch(self) -> Any:
        if self._iterator is None:
            self._begin_pass()
        try:
            batch = self._next()
        except StopIteration:
            if self._in_pass == 0:
                raise UserError(
                    f"{self._build.__name__} returned a tf.data.Dataset that gave no batch.", at=self._build
                ) from None
            self._begin_pass()
            batch = self._next()
        self._in_pass += 1
        return batch

    def _next(self) -> Any:
        if self._drawn is not None or self._mode != REBUILT:
            return next(self._iterator)
        before, shared = [_state_of(item) for item in self._candidates], _global_states()
        batch = next(self._iterator)  # nothing else draws meanwhile: the training waits
        if changed := [name for name, state in _global_states().items() if state != shared[name]]:
            self._note(DRAWS_FROM_ALL.format(build=self._build.__name__, names=" and ".join(changed)))
        pairs = zip(self._candidates, before, strict=True)
        self._drawn = [item for item, state in pairs if _state_of(item) != state]
        return batch

    def _begin_pass(self) -> None:
        if self._mode == REBUILT:
            seed = derive_seed(self._seed, "own", self._passes)
            for index, generator in enumerate(self._candidates):
                if self._drawn is None or any(generator is item for item in self._drawn):
                    _reseed(generator, derive_seed(seed, index))
            with building(derive_seed(self._seed, "pass", self._passes)):
                self._dataset = _steady(self._build())
                self._iterator = iter(self._dataset)
        else:
            self._iterator = iter(self._dataset)
        self._passes, self._in_pass = self._passes + 1, 0

    def place(self) -> BatchesPosition:
        values = {"passes": self._passes, "in_pass": self._in_pass}
        if self._mode == SAVED and self._iterator is not None:
            files = _save(self._iterator)
            if self._endless or sum(map(len, files.values())) <= ITERATOR_BYTES_MAX:
                return BatchesPosition({"mode": SAVED, **values}, files)
            self._mode = COUNTED
        return BatchesPosition({"mode": self._mode, **values})


def _generators_of(build: Callable[[], Any]) -> list[Any]:
    """Generators of the user's that the pipeline may draw from; those of TensorFlow are attributes of the trial."""
    owner = getattr(build, "__self__", None)
    kept = sorted(vars(owner).items()) if owner is not None else []
    own = own_generators(build, skip=(getattr(owner, "context", None), getattr(owner, "model", None)))
    return [*own, *(item for _, item in kept if isinstance(item, tf.random.Generator))]


def _global_states() -> dict[str, str]:
    return {
        "NumPy's global generator (np.random)": mark(np.random.get_state(legacy=False), versions=False),
        "Python's global generator (random)": mark(random.getstate(), versions=False),
    }


def _state_of(generator: Any) -> str:
    state = generator.state.numpy() if isinstance(generator, tf.random.Generator) else state_of(generator)
    return mark(state, versions=False)


def _reseed(generator: Any, seed: int) -> None:
    if isinstance(generator, tf.random.Generator):
        generator.reset_from_seed(seed % 2**63)
    else:
        reseed(generator, seed)


def _steady(dataset: Any) -> Any:
    """The dataset with its elements in one order, whatever its threads do."""
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.FAIL
    return dataset.with_options(options)


def _can_save(dataset: Any) -> bool:
    """True if the dataset's iterator can be saved. Uses up an iterator, in each process alike: the dataset draws the order of
    each from one generator."""
    try:
        _save(iter(dataset))
    except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError):
        return False
    return True


def _save(iterator: Any) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as directory:
        tf.train.Checkpoint(iterator=iterator).write(str(Path(directory) / _NAME))
        return {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir())}


def _restore(iterator: Any, files: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for name, content in files.items():
            (Path(directory) / name).write_bytes(content)
        tf.train.Checkpoint(iterator=iterator).read(str(Path(directory) / _NAME)).expect_partial()
