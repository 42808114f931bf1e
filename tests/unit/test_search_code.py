"""A function's source with all that it uses, as a module of its own: what runs there is what ran here."""

from __future__ import annotations

import linecache
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tenuto.client import ClientError
from tenuto.searching.code import NotPortable, module_source
from tenuto.searching.run import run_search

CELLS = (
    """
import math
import os.path as paths
from collections import OrderedDict as Ordered

SCALE = 2.5
TABLE = {"a": (1, 2.0), "b": [None, True]}
LEAST = float("-inf")
OPEN = open("/dev/null")
""",
    """
def twice(decorated):
    def inner(value):
        return decorated(decorated(value))
    return inner

class Base:
    factor = SCALE

def half(value):
    return value / 2
""",
    """
class Model(Base):
    def result(self, x):
        return self.factor * half(x) + math.sqrt(TABLE["a"][1]) + len(Ordered(a=1)) + (0 if x > LEAST else 1)

def train(hyperparameters):
    @twice
    def more(value):
        return value + 1
    return Model().result(more(hyperparameters["x"])) + len(paths.basename("a/bc"))

def reads_file(hyperparameters):
    return OPEN.read()

def recursive(n):
    return 1 if n < 1 else recursive(n - 1) + odd(n)

def odd(n):
    return recursive(n - 2) if n > 2 else 0

quick = lambda hyperparameters: 1.0
""",
)


@pytest.fixture
def notebook() -> Iterator[dict[str, Any]]:
    """Names of a program whose parts were typed one after the other, as in a notebook."""
    module = ModuleType("__notebook__")
    sys.modules["__notebook__"] = module
    for number, cell in enumerate(CELLS):
        file = f"<cell {number}>"
        linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
        exec(compile(cell, file, "exec"), vars(module))
    yield vars(module)
    module.OPEN.close()
    del sys.modules["__notebook__"]


def ran(text: str, name: str) -> Any:
    names: dict[str, Any] = {"__name__": "searched"}
    exec(compile(text, "searched.py", "exec"), names)
    return names[name]


def test_what_it_uses_comes_along_and_nothing_else(notebook: dict[str, Any]) -> None:
    text = module_source(notebook["train"])
    assert ran(text, "train")({"x": 3.0}) == notebook["train"]({"x": 3.0}) == 2.5 * 2.5 + math.sqrt(2.0) + 1 + 2
    assert "reads_file" not in text
    assert "import os" not in text.replace("import posixpath as paths", "")
    assert ran(module_source(notebook["recursive"]), "recursive")(5) == notebook["recursive"](5)
    assert ran(module_source(notebook["Model"]), "Model")().result(1.0) == notebook["Model"]().result(1.0)


def test_what_cannot_be_sent_is_said(notebook: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(NotPortable, match="reads_file uses OPEN, a TextIOWrapper of this program, which a worker does not have"):
        module_source(notebook["reads_file"])
    with pytest.raises(NotPortable, match="A lambda has no source of its own"):
        module_source(notebook["quick"])
    limit = 3

    def inner(hyperparameters: dict[str, Any]) -> float:
        return float(limit)

    with pytest.raises(NotPortable, match="inner uses limit of the function around it"):
        module_source(inner)
    names: dict[str, Any] = {"__name__": "__notebook__"}
    exec("def typed(hyperparameters):\n    return 1.0\n", names)
    with pytest.raises(NotPortable, match="The source of typed cannot be found"):
        module_source(names["typed"])


def test_wrong_use_is_one_sentence(notebook: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="Model trains step by step: say how long with max_length"):
        run_search(notebook["Model"], {})
    with pytest.raises(ClientError, match="needs a function or a Trial class"):
        run_search("train", {})  # type: ignore[arg-type]
    (tmp_path / "searched.py").write_text("")
    with pytest.raises(ClientError, match=r"has a file searched\.py, which run_search writes"):
        run_search(notebook["train"], {}, model_dir=tmp_path)
