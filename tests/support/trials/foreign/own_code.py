"""Trials whose state lives in classes, closures, defaults and attributes of functions, or in globals that hold the trial's own
objects."""

import collections
import functools
import itertools

import torch
from changed import Changed, of
from torch import nn

EMA = None
MODEL = None
PARAMETERS = []
STAGE = None
LARGE = torch.ones(1 << 20)


class Caching:
    cache, calls, __hidden = {}, 0, 0

    @classmethod
    def value(cls):
        cls.calls += 1
        cls.__hidden += 2
        cls.cache[cls.calls] = cls.__hidden
        return sum(cls.cache.values())


class Inner:
    class Deep:
        calls = 0


@of
def class_attribute():
    return Caching.value()


@of
def attribute_of_inner_class():
    Inner.Deep.calls += 1
    return Inner.Deep.calls


def counting():
    n, memory = 0, []

    def step():
        nonlocal n
        n += 1
        memory.append(n)
        return sum(memory)

    return step


STEP, OTHER_STEP = counting(), counting()


@of
def closure():
    return STEP()


@of
def two_closures_of_one_function():
    OTHER_STEP()
    return OTHER_STEP() - STEP()


def remembering(value=1.0, memory=[0.0], *, recent=collections.deque(maxlen=2)):  # noqa: B006
    memory.append(memory[-1] + value)
    recent.append(memory[-1])
    return sum(recent)


@of
def mutable_default():
    return remembering()


def attributed():
    attributed.calls = getattr(attributed, "calls", 0) + 1
    return attributed.calls


@of
def attribute_of_function():
    return attributed()


def counted(function):
    calls = 0

    @functools.wraps(function)
    def wrapper(*args):
        nonlocal calls
        calls += 1
        return function(*args) * calls

    return wrapper


@counted
def decorated():
    return 1


@of
def decorator_that_counts():
    return decorated()


PARTIAL = functools.partial(remembering, memory=[1.0])


@of
def partial_with_memory():
    return PARTIAL()


class OfMethod(Changed):
    @counted
    def change(self):
        return 1


class Own(Changed):
    """An attribute of the trial's class, and a closure that it holds."""

    calls = 0

    def __init__(self, context):
        super().__init__(context)
        self.step = counting()

    def change(self):
        type(self).calls += 1
        return self.calls + self.step()


class Counted(Changed):
    """A count that the trial has, which another object counts with, too."""

    def __init__(self, context):
        super().__init__(context)
        self.ids = itertools.count()
        self.given = {"ids": self.ids}

    def change(self):
        return next(self.ids) + next(self.given["ids"])


class LocalClass(Changed):
    def __init__(self, context):
        class Local:
            calls = 0

        super().__init__(context)
        self.local = Local()

    def change(self):
        type(self.local).calls += 1
        return self.local.calls


class Constant(Changed):
    """A large tensor that nothing changes is in no checkpoint."""

    def change(self):
        return LARGE[0]


# Objects that the trial has, too.


class Average(Changed):
    """An average of weights that is a module in a global."""

    def __init__(self, context):
        global EMA
        super().__init__(context)
        EMA = nn.Linear(1, 1)
        EMA.load_state_dict(self.model.state_dict())

    @torch.no_grad()
    def change(self):
        for mine, theirs in zip(EMA.parameters(), self.model.parameters(), strict=True):
            mine.lerp_(theirs, 0.1)
        return EMA.weight.sum()


class Shared(Changed):
    """Globals that hold the trial's model, its parameters and a list of its own."""

    def __init__(self, context):
        global MODEL, STAGE
        super().__init__(context)
        MODEL = self.model
        PARAMETERS[:] = list(self.model.parameters())
        self.stages = [[0.0], [1.0]]
        STAGE = self.stages[0]

    def change(self):
        global STAGE
        assert MODEL is self.model and PARAMETERS[0] is self.model.weight  # noqa: PT018
        STAGE[0] += 1
        STAGE = self.stages[int(STAGE[0]) % 2]
        assert any(STAGE is stage for stage in self.stages)
        return sum(map(sum, self.stages)) + float(PARAMETERS[0].sum())
