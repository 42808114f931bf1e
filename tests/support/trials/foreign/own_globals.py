"""Trials whose state lives in globals of their module and of another one."""

import collections
import contextvars
import dataclasses
import enum
import itertools
import random
import threading
from types import SimpleNamespace

import helpers
import numpy as np
import torch
from changed import of

COUNT = 0
RATE = 1.0
RNG = np.random.default_rng(3)
OLD_RNG = np.random.RandomState(3)
PYTHON = random.Random(4)
TORCH = torch.Generator().manual_seed(5)
BANK = torch.zeros(8)
ARRAY = np.zeros(4)
RECENT = collections.deque(maxlen=3)
TENSORS = collections.deque(maxlen=2)
TABLE = collections.defaultdict(float)
COUNTER = collections.Counter()
IDS = itertools.count(3, 2)
LOCAL = threading.local()
NAMES = SimpleNamespace(calls=0)
VARIABLE = contextvars.ContextVar("variable", default=0.0)
SEEN = set()
BUFFER = bytearray(4)
LATE = None


class Kind(enum.Enum):
    ODD = 1
    EVEN = 2


BY_KIND = {Kind.ODD: 0.0, Kind.EVEN: 0.0}


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total += value
        self.count += 1
        return self.total / self.count


class Slotted:
    __slots__ = ("value",)

    def __init__(self):
        self.value = 1.0


class Pickling:
    """Leaves out its value in what it pickles."""

    def __init__(self):
        self.value = 1.0

    def __getstate__(self):
        return {}


class Property:
    def __init__(self):
        self._value = 1.0

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, value):
        self._value = value


@dataclasses.dataclass
class Data:
    value: float = 1.0
    history: list = dataclasses.field(default_factory=list)


METER, SLOTTED, PICKLING, PROPERTY, DATA = Meter(), Slotted(), Pickling(), Property(), Data()


@of
def number():
    global COUNT
    COUNT += 1
    return COUNT


@of
def decay():
    global RATE
    RATE *= 0.9
    return RATE


@of
def numpy_generator():
    return RNG.normal()


@of
def numpy_old_generator():
    return OLD_RNG.normal()


@of
def python_generator():
    return PYTHON.random()


@of
def torch_generator():
    return torch.rand(1, generator=TORCH)


@of
def memory_bank():
    BANK[int(BANK.sum()) % 8] += 1
    return BANK.std()


@of
def array():
    ARRAY[1:] += ARRAY[:-1]
    ARRAY[0] += 0.5
    return ARRAY.sum() / 100


@of
def numbers_in_deque():
    RECENT.append(len(RECENT) + sum(RECENT))
    return sum(RECENT) / 100


@of
def tensors_in_deque():
    TENSORS.append(torch.ones(1) + sum(TENSORS))
    return sum(TENSORS) / 10


@of
def default_dict():
    TABLE[len(TABLE)] += 1.0
    return sum(TABLE.values())


@of
def counter():
    COUNTER.update({COUNTER.total() % 3: 1})
    return COUNTER[0] + COUNTER[1] * 0.1


@of
def count_of_itertools():
    return next(IDS)


@of
def thread_local():
    LOCAL.calls = getattr(LOCAL, "calls", 0) + 1
    return LOCAL.calls


@of
def namespace():
    NAMES.calls += 1
    return NAMES.calls


@of
def context_variable():
    VARIABLE.set(VARIABLE.get() + 1)
    return VARIABLE.get()


@of
def members_of_set():
    SEEN.add(len(SEEN))
    return len(SEEN)


@of
def bytes_in_place():
    BUFFER[0] += 1
    return BUFFER[0]


@of
def keys_of_enum():
    kind = Kind.EVEN if BY_KIND[Kind.ODD] > BY_KIND[Kind.EVEN] else Kind.ODD
    BY_KIND[kind] += 1.5
    return BY_KIND[Kind.ODD]


@of
def object_with_attributes():
    return METER.update(METER.count)


@of
def object_with_slots():
    SLOTTED.value *= 0.8
    return SLOTTED.value


@of
def object_with_getstate():
    PICKLING.value *= 0.8
    return PICKLING.value


@of
def object_with_property():
    PROPERTY.value *= 0.8
    return PROPERTY.value


@of
def data_class():
    DATA.value *= 0.9
    DATA.history.append(DATA.value)
    return sum(DATA.history)


@of
def set_later():
    global LATE
    LATE = torch.zeros(2) if LATE is None else LATE + 0.5
    return LATE.sum()


@of
def name_made_later():
    global MADE
    MADE = globals().get("MADE", 0) + 1
    return MADE


@of
def other_module():
    helpers.CALLS += 1
    helpers.HISTORY.append(helpers.CALLS)
    return len(helpers.HISTORY)


@of
def module_imported_later():
    import late_helpers

    late_helpers.CALLS += 1
    return late_helpers.CALLS
