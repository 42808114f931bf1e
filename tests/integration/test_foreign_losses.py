"""What a trial loses at a resume is told by name, with its place, at the first checkpoint; what is no loss is not told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tests.support.exact_trials import INFO, assert_same, trained_anew
from tests.support.foreign_cases import END, STOPS, context_left, ended, fresh

__all__ = ("context_left",)

pytestmark = pytest.mark.usefixtures("torch_as_it_was", "context_left")

TOLD = {
    "generator object": (
        "NUMBERS = (float(number) for number in range(100))",
        "next(NUMBERS)",
        "foreign_case.NUMBERS is a generator, ",
        "NUMBERS = ",
    ),
    "generator in a closure": (
        """
def running():
    total = 0.0
    while True:
        total += yield total


def feeding():
    sums = running()
    next(sums)
    return lambda: sums.send(1.0)


FEED = feeding()""",
        "FEED()",
        "foreign_case.FEED.sums is a generator, ",
        "return lambda",
    ),
    "cycle of itertools": (
        "import itertools\nRATES = itertools.cycle([1.0, 2.0, 3.0])",
        "next(RATES)",
        "foreign_case.RATES is a cycle, ",
        "RATES = ",
    ),
    "iterator made later": (
        "RATES = None",
        "following()",
        "foreign_case.RATES is a list_iterator, ",
        "RATES = iter(",
        "def following():\n    global RATES\n    if RATES is None:\n"
        "        RATES = iter([float(n) for n in range(20)])\n    return next(RATES)",
    ),
    "open file": (
        "import pathlib\npathlib.Path('numbers.txt').write_text('1\\n2\\n3\\n' * 9)\nFILE = open('numbers.txt')",
        "float(FILE.readline())",
        "foreign_case.FILE is a TextIOWrapper, ",
        "FILE = open",
    ),
    "queue": (
        "import queue\nQUEUE = queue.Queue()",
        "QUEUE.put(1) or QUEUE.qsize()",
        "foreign_case.QUEUE is a Queue, ",
        "QUEUE = ",
    ),
    "weak dictionary": (
        "import weakref\nclass Thing:\n    pass\n\n\nSEEN, THINGS = weakref.WeakValueDictionary(), [Thing() for _ in range(20)]",
        "SEEN.update({len(SEEN): THINGS[len(SEEN)]}) or len(SEEN)",
        "foreign_case.SEEN is a WeakValueDictionary, ",
        "SEEN, THINGS = ",
    ),
    "lru_cache that draws": (
        "@functools.lru_cache\ndef noise(size):\n    return torch.randn(size)",
        "noise(1)",
        "foreign_case.noise is a _lru_cache_wrapper, ",
        "",
    ),
    "lru_cache of an object": (
        "@functools.cache\ndef memory():\n    return [0.0]",
        "memory().append(sum(memory()) + 1) or sum(memory())",
        "foreign_case.memory is a _lru_cache_wrapper, ",
        "",
    ),
    "object of a class of its own, made later": (
        "class Meter:\n    def __init__(self):\n        self.calls = 0\n\n\nMETER = None",
        "metered()",
        "foreign_case.METER is a Meter, ",
        "METER = METER or Meter()",
        "def metered():\n    global METER\n    METER = METER or Meter()\n    METER.calls += 1\n    return METER.calls",
    ),
    "cache over the limit": (
        "CACHE = {}",
        "cached()",
        "foreign_case.CACHE is a dict of 80 MiB, over the 64 MiB for globals",
        "CACHE = ",
        "def cached():\n    CACHE.setdefault(0, torch.zeros(20 << 20))[0] += 1\n    return CACHE[0][0]",
    ),
    "iterator in a class": (
        "class Plan:\n    rates = iter([float(n) for n in range(20)])",
        "next(Plan.rates)",
        "foreign_case.Plan.rates is a list_iterator, ",
        "    rates = ",
    ),
    "iterator in a default": (
        "def following(rates=iter([float(n) for n in range(20)])):\n    return next(rates)",
        "following()",
        "foreign_case.following.rates is a list_iterator, ",
        "def following(",
    ),
    "iterator in a thread local": (
        "import threading\nLOCAL = threading.local()\nLOCAL.rates = iter([float(n) for n in range(20)])",
        "next(LOCAL.rates)",
        "foreign_case.LOCAL.rates is a list_iterator, ",
        "LOCAL = ",
    ),
}
"""By case: the code, a number that depends on it, what is told, the words of the line that is named, and functions."""

ADDED = "hooks were added or removed since __init__ (model.0.forward_hooks[0]), and a restarted trial has those of __init__"


@pytest.mark.parametrize(("name", "told"), [("HookAdded", ADDED), ("HookRemoved", ADDED)])
def test_a_loss_of_what_a_model_is_made_of_is_told(name: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    [sentence] = ended("own_hooks", name).breaks
    assert sentence.startswith(told)
    assert capsys.readouterr().err.count(told) == 1


FRAME = """import functools

import torch

from tests.support.exact_trials import Training

{begin}


{functions}


class Case(Training):
    def loss(self, output, target):
        return super().loss(output, target) * (1 + 0.1 * float({number}))
"""


def case(directory: Path, begin: str, number: str, functions: str = "") -> Any:
    (directory / "foreign_case.py").write_text(FRAME.format(begin=begin, number=number, functions=functions))
    return fresh(directory, "foreign_case", "Case")


@pytest.mark.parametrize("name", TOLD)
def test_what_is_lost_is_told_by_name_at_the_first_checkpoint(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, number, told, words, *functions = TOLD[name]
    kind = case(tmp_path, begin, number, *functions)
    [sentence] = trained_anew(lambda: kind, 3).breaks
    assert sentence.startswith(told)
    if words:
        lines = (tmp_path / "foreign_case.py").read_text().splitlines()
        line = max(number for number, text in enumerate(lines, 1) if words in text)
        assert f"it is set in foreign_case.py:{line}: " in sentence
    assert capsys.readouterr().err.count(told) == 1


HARMLESS = {
    "lock": ("import threading\nLOCK = threading.Lock()", "LOCK.acquire() and LOCK.release() or 1"),
    "log file": ("FILE = open('log.txt', 'a')", "FILE.write('line')"),
    "logger": ("import logging\nLOGGER = logging.getLogger('own')", "LOGGER.info('line') or 1"),
    "cached mask": ("@functools.lru_cache\ndef mask(size):\n    return torch.ones(size, size).tril()", "mask(3).sum()"),
    "unused generator": ("NUMBERS = (number for number in range(100))", "1"),
    "pattern": ("import re\nPATTERN = re.compile('a+')", "len(PATTERN.findall('baab'))"),
    "proxy of what is not there": (
        "class Proxy:\n    def __getattr__(self, name):\n        raise RuntimeError('not yet')\n\n\nPROXY = Proxy()",
        "1",
    ),
    "types": ("from typing import TypeVar, Optional\nT = TypeVar('T')\nMaybe = Optional[int]", "1"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_training_does_not_change_is_not_told(name: str, tmp_path: Path) -> None:
    kind = case(tmp_path, *HARMLESS[name])
    assert trained_anew(lambda: kind, 3).breaks == []


def test_a_global_that_the_trial_saves_itself_is_not_told(tmp_path: Path) -> None:
    own = """

    def state_dict(self):
        return {"left": NUMBERS.__length_hint__()}

    def load_state_dict(self, state):
        while NUMBERS.__length_hint__() > state["left"]:
            next(NUMBERS)
"""
    case(tmp_path, "NUMBERS = iter([float(n) for n in range(30)])", "next(NUMBERS)")
    path = tmp_path / "foreign_case.py"
    path.write_text(path.read_text() + own)

    def load() -> Any:
        return fresh(tmp_path, "foreign_case", "Case")

    alone, resumed = trained_anew(load, END), trained_anew(load, END, STOPS)
    assert resumed.breaks == []
    assert_same(resumed, alone)


def test_a_global_that_cannot_take_its_state_is_told_and_the_trial_goes_on(tmp_path: Path) -> None:
    begin = """
class Refusing:
    def __init__(self):
        self.calls = 0

    def number(self):
        self.calls += 1
        return self.calls

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        raise RuntimeError("no")


REFUSING = Refusing()"""
    case(tmp_path, begin, "REFUSING.number()")
    resumed = trained_anew(lambda: fresh(tmp_path, "foreign_case", "Case"), END, STOPS)
    assert [sentence for sentence in resumed.breaks if "there is no place for foreign_case.REFUSING" in sentence]


def test_a_large_global_that_nothing_changes_is_in_no_checkpoint(tmp_path: Path) -> None:
    begin = "LARGE, WORDS, BANK = torch.ones(1 << 20), {number: 'word' for number in range(5000)}, torch.zeros(3)"
    kind = case(tmp_path, begin, "LARGE[0] + len(WORDS) + BANK.add_(1).sum()")
    trainer = PyTorchTrainer(kind, INFO)
    trainer.train(3, lambda: False)
    (saved := tmp_path / "saved").mkdir()
    trainer.save(saved)
    trainer.close()
    paths = {"".join(path) for path, _ in torch.load(saved / "state.pt", weights_only=True)["attributes"]}
    assert {path for path in paths if path.startswith("code ")} == {"code foreign_case.BANK"}
