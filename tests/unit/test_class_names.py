"""Each class has a name of its own: a reader who looks a name up finds one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.support.import_graph import modules

SERVICES = "each core that decides has its own record of it, with the fields of its decisions; no service imports another"
PUBLIC = "name for users on both sides, of which a program imports one"
DETERMINED = "Determined's name, by which code that was written for it imports this class, and ours for the same thing"
TWICE = {
    "Allocation": SERVICES,
    "Checkpoint": f"tracker: {SERVICES}; script and client: {PUBLIC}",
    "CustomSearcher": "class that users derive from, and the model of its part in the published schema of configurations",
    "Event": f"envelope of the log, and what automations and the client give users of it: {PUBLIC}",
    "Experiment": f"cores: {SERVICES}; client: {PUBLIC}",
    "PyTorchCallback": DETERMINED,
    "PyTorchTrial": DETERMINED,
    "PyTorchTrialContext": DETERMINED,
    "Reducer": DETERMINED,
    "Refused": "refusal of a command by a core, and the error of the client that tells users of it",
    "State": SERVICES,
    "Target": "port of plug-ins that send notices, and the public class of a client's address and token",
    "TenutoCallback": PUBLIC,
    "Trainer": DETERMINED,
    "Trial": f"cores: {SERVICES}; client and searches: {PUBLIC}",
    "TrialInfo": DETERMINED,
}
"""Class names that are defined more than once -> the reason."""
TWICE_MAX = 20
CLASS = re.compile(r"^ *class (\w+)[(:\[]", re.MULTILINE)
"""First line of a definition, or of an example in a docstring: only modules with a name that occurs twice are parsed, as to parse
all of them would take seconds."""


def _defines(path: Path, name: str) -> bool:
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in ast.walk(ast.parse(path.read_text())))


def test_a_class_has_a_name_of_its_own_or_a_reason_why_not() -> None:
    known, found = modules(), defaultdict(set)
    for module, path in known.items():
        for name in CLASS.findall(path.read_text()):
            found[name].add(module)
    assert len(found) > 1_500
    several = {name: sorted(places) for name, places in found.items() if len(places) > 1}
    twice = {name: [module for module in places if _defines(known[module], name)] for name, places in several.items()}
    twice = {name: places for name, places in twice.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in TWICE} == {}, "name it for what it is"
    assert twice.keys() == TWICE.keys(), "a reason is left over"
    assert len(TWICE) <= TWICE_MAX
