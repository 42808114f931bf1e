"""Which files of tests run first, and that each runs once, whoever runs it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import running_order
from tests.support.running_order import ROOT, Mixed

FILES = {
    "tests/e2e/test_long.py": 90.0,
    "tests/e2e/test_short.py": 9.0,
    "tests/security/test_middle.py": 40.0,
    "tests/simulation/test_slow.py": 20.0,
    "tests/unit/test_one.py": 0.0,
    "tests/unit/test_two.py": 0.0,
}


class Node:
    """A process of a run."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def dealt(monkeypatch: pytest.MonkeyPatch, processes: int) -> dict[str, list[str]]:
    """Files that each of the processes runs, in order, if they take turns."""
    config: Any = SimpleNamespace(option=SimpleNamespace(loadscopereorder=False), getvalue=lambda name: [f"{processes}*popen"])
    monkeypatch.setattr("xdist.scheduler.loadscope.parse_tx_spec_config", lambda config: range(processes))
    monkeypatch.setattr(running_order, "table", lambda: FILES)
    tests = [SimpleNamespace(nodeid=f"{file}::test_{number}") for file in sorted(FILES, key=len) for number in range(3)]
    collection = [item.nodeid for item in running_order.slowest_first(tests)]  # type: ignore[arg-type]
    scheduler, nodes = Mixed(config), [Node(f"gw{number}") for number in range(processes)]
    for node in nodes:
        scheduler.add_node(node)  # type: ignore[arg-type]
        scheduler.add_node_collection(node, collection)  # type: ignore[arg-type]
    scheduler.schedule()
    done = dict.fromkeys(nodes, 0)
    while any(done[node] < len(node.given) for node in nodes):
        for node in nodes:
            if done[node] < len(node.given):
                scheduler.mark_test_complete(node, node.given[done[node]])  # type: ignore[arg-type]
                done[node] += 1
    assert scheduler.tests_finished
    return {node.gateway.id: list(dict.fromkeys(collection[index].split("::")[0] for index in node.given)) for node in nodes}


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_each_file_is_run_once_as_a_whole(monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    found = [file for files in dealt(monkeypatch, processes).values() for file in files]
    assert sorted(found) == sorted(FILES)


def test_one_process_computes_while_the_others_wait_and_the_longest_are_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dealt(monkeypatch, 3)
    assert found["gw0"][0] == "tests/simulation/test_slow.py"
    assert found["gw1"][0] == "tests/e2e/test_long.py"
    assert found["gw2"][0] == "tests/security/test_middle.py"


def test_a_process_without_files_of_its_kind_takes_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dealt(monkeypatch, 1)["gw0"] == [
        *("tests/simulation/test_slow.py", "tests/unit/test_one.py", "tests/unit/test_two.py"),
        *("tests/e2e/test_long.py", "tests/security/test_middle.py", "tests/e2e/test_short.py"),
    ]


def test_files_of_a_framework_are_run_by_the_process_that_has_imported_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {
        "keras": 90.0,
        "keras_ranks": 80.0,
        "core_api_lightning": 70.0,
        "keras_network": 60.0,
        "long": 50.0,
        "limits": 40.0,
    }
    monkeypatch.setitem(globals(), "FILES", {f"tests/integration/test_{name}.py": value for name, value in seconds.items()})
    found = [[Path(file).stem for file in files] for files in dealt(monkeypatch, 2).values()]
    assert found == [
        ["test_keras", "test_keras_ranks", "test_keras_network"],
        ["test_core_api_lightning", "test_long", "test_limits"],
    ]


def test_the_table_knows_files_that_there_are() -> None:
    running_order.table.cache_clear()
    assert [file for file in running_order.table() if not (ROOT / file).exists()] == []
