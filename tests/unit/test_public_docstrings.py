"""The reference of what users import is complete: each name says what it is and what its arguments are, and those that users call
most have an example."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from docs import python_page as page

SELF_EXPLAINING = {"experiment_id", "trial_id", "checkpoint_id"}
"""Arguments whose names say all."""
WITH_EXAMPLE = (
    "tenuto.init", "tenuto.data", "tenuto.run_local", "tenuto.run_search", "tenuto.Run.operations", "tenuto.Run.report_training",
    "tenuto.Run.report_validation", "tenuto.Run.checkpoint.save", "tenuto.Run.checkpoint.restore", "tenuto.Client",
    "tenuto.Client.create_experiment", "tenuto.Client.get_experiment", "tenuto.client.Experiment.wait",
    "tenuto.client.Experiment.best_trial", "tenuto.client.Checkpoint.load", "tenuto.client.Checkpoint.download",
    "tenuto.pytorch.PyTorchTrial", "tenuto.pytorch.PyTorchTrial.build_training_data_loader",
    "tenuto.pytorch.PyTorchTrialContext.wrap_model", "tenuto.pytorch.PyTorchTrialContext.wrap_optimizer",
    "tenuto.pytorch.PyTorchTrialContext.wrap_lr_scheduler", "tenuto.pytorch.PyTorchTrialContext.backward",
    "tenuto.pytorch.PyTorchTrialContext.step_optimizer", "tenuto.pytorch.PyTorchTrialContext.get_hparam",
    "tenuto.keras.KerasTrial", "tenuto.huggingface.train", "tenuto.lightning.fit", "tenuto.search.CustomSearcher",
    "tenuto.automation.App.on",
)  # fmt: skip
"""Names that users call most."""


@dataclass(frozen=True)
class Public:
    name: str
    said: str
    arguments: tuple[str, ...] = ()
    """Names of the arguments that a user gives."""


def of_class(node: ast.ClassDef, module: str, name: str) -> Iterator[Public]:
    init = page.constructor(node)
    documented = (node,) if init is None else (node, init)
    said = "\n\n".join(text for item in documented if (text := ast.get_docstring(item)))
    given = () if init is None else tuple(item.arg for item in page.arguments(init))
    yield Public(name, said, given)
    for field, _, what in page.fields(node, module):
        yield Public(f"{name}.{field}", what)
    for item in node.body:
        if isinstance(item, ast.ClassDef) and not item.name.startswith("_"):
            yield from of_class(item, module, f"{name}.{item.name}")
    for method in page.members(node, module):
        hook = node.name in page.CALLBACKS and method.name.startswith("on_")
        arguments = () if hook else tuple(item.arg for item in page.arguments(method))
        yield Public(f"{name}.{method.name}", ast.get_docstring(method) or "", arguments)
    for part, (where, kind) in page.PARTS.get(node.name, {}).items():
        found = page.find(where, kind)[1]
        assert isinstance(found, ast.ClassDef)
        yield from of_class(found, where, f"{name}.{part.partition('.')[2]}")


def everything() -> Iterator[Public]:
    for module in page.MODULES:
        for name in page.public(module):
            where, node = page.find(module, name)
            if isinstance(node, ast.ClassDef):
                yield from of_class(node, where, f"{module}.{name}")
            elif node is not None:
                arguments = tuple(item.arg for item in page.arguments(node))
                yield Public(f"{module}.{name}", ast.get_docstring(node) or "", arguments)
            elif where.startswith("tenuto"):
                yield Public(f"{module}.{name}", page.alias(where, name))


PUBLIC = tuple(item for item in everything() if ".Async" not in item.name)
"""Without the twins for programs with an event loop: both clients are made of one source."""


def prose(said: str) -> str:
    return page.EXAMPLE.sub("\n\n", f"{said}\n")


def unsaid(item: Public) -> list[str]:
    """Arguments that the docstring does not name in backticks."""
    return [
        name
        for name in item.arguments
        if name not in SELF_EXPLAINING and not re.search(rf"`[^`]*\b{name}\b[^`]*`", prose(item.said))
    ]


def unknown(item: Public) -> list[str]:
    """Names that the docstring lists as arguments, and that are none."""
    return [name for name in re.findall(r"`\**(\w+)`: ", prose(item.said)) if name not in item.arguments]


def test_there_is_a_docstring_for_each_name() -> None:
    assert len(PUBLIC) > 300
    assert [item.name for item in PUBLIC if not item.said] == []


def test_there_is_a_word_on_each_argument() -> None:
    assert {item.name: names for item in PUBLIC if (names := unsaid(item))} == {}


def test_arguments_that_are_explained_exist() -> None:
    assert {item.name: names for item in PUBLIC if item.arguments and (names := unknown(item))} == {}


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_most_used_names_have_an_example(name: str) -> None:
    assert any(page.examples(item.said) for item in PUBLIC if item.name == name), f"{name} has no example"


def test_examples_are_python() -> None:
    modules = [ast.get_docstring(page.tree(module)[0]) or "" for module in page.MODULES]
    found = [code for said in (*(item.said for item in PUBLIC), *modules) for code in page.examples(said)]
    assert len(found) >= len(WITH_EXAMPLE)
    for code in found:
        ast.parse(code)


def test_faults_are_found() -> None:
    said = "Waits. `seconds`: longest wait.\n\n    wait(until=3)\n\n    wait(4)\n\nIt returns None."
    assert page.examples(said) == ["wait(until=3)\n\nwait(4)"]
    assert unsaid(Public("wait", said, ("seconds", "until"))) == ["until"]
    assert unknown(Public("wait", said, ("until",))) == ["seconds"]


def test_long_signatures_have_one_argument_on_each_line() -> None:
    lines = page.python_page().splitlines()
    assert max(len(line) for line in lines if re.match(r"[\w.]+\(.*\)( -> .*)?$", line)) <= page.SIGNATURE_CHARACTERS_MAX + 1
