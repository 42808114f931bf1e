"""Breaks of exactness: causes for which a trial's last bits differ from those of its repetition. They are noted, stored in each
checkpoint, and reported.

The file `exactness.json` of a checkpoint describes the machine and the breaks. Frameworks list what results depend on.
"""

from __future__ import annotations

import json
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tenuto.schemas.reports import BREAK_CHARACTERS_MAX
from tenuto.schemas.reports import BREAKS_MAX as BREAKS_REPORTED_MAX

EXACTNESS_FILE = "exactness.json"
BREAKS_MAX = 50
"""Most different sentences kept: each is about one operation or setting, and a model has few that matter."""


@cache
def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def breaks_in(directory: Path) -> tuple[str, ...]:
    """Sentences in a checkpoint's files, shortened for a report; none if the checkpoint has no such record."""
    try:
        found = json.loads((directory / EXACTNESS_FILE).read_bytes()).get("breaks", ())
    except (OSError, ValueError, AttributeError):  # a script's own file may have that name
        return ()
    sentences = [item for item in found if isinstance(item, str)] if isinstance(found, list) else []
    plain = ["".join(letter if letter.isprintable() else " " for letter in item) for item in sentences]
    return tuple(" ".join(item.split())[:BREAK_CHARACTERS_MAX] for item in plain[:BREAKS_REPORTED_MAX])


def not_searched_in(directory: Path) -> tuple[str, ...]:
    """Attributes, named in a checkpoint's files, whose inside it does not know."""
    try:
        found = json.loads((directory / EXACTNESS_FILE).read_bytes()).get("not_searched", ())
    except (OSError, ValueError, AttributeError):
        return ()
    return tuple(item for item in found if isinstance(item, str)) if isinstance(found, list) else ()


def add_breaks(directory: Path, sentences: list[str]) -> None:
    """Adds sentences to the record in a checkpoint's files, or to a new one. Raises OSError."""
    if not sentences:
        return
    path = directory / EXACTNESS_FILE
    try:
        found = json.loads(path.read_bytes())
        known = list(found["breaks"])
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        found, known = {"exact": False, "surroundings": {}}, []
    found["breaks"] = known + [sentence for sentence in sentences if sentence not in known]
    found["exact"] = False
    path.write_bytes(json.dumps(found, indent=1, sort_keys=True).encode())


class ExactnessRecord(ABC):
    """Breaks noticed by one process. `say`: tells the user a sentence; each is told once."""

    def __init__(self, exact: bool, say: Callable[[str], None]) -> None:
        self.exact, self._say = exact, say
        self.breaks: list[str] = []
        self.not_searched: list[str] = []
        """Attributes whose inside no checkpoint knows: where to look if a resumed trial differs."""
        self._told = False

    @abstractmethod
    def surroundings(self) -> dict[str, str]:
        """Properties that results may depend on, by name."""

    @abstractmethod
    def check_settings(self) -> None:
        """Notes settings that the user's code has changed."""

    def note(self, sentence: str) -> None:
        if self._add(sentence):
            self._say(f"results may differ in the last bits when this trial is resumed or repeated: {sentence}")

    def note_lost(self, sentence: str) -> None:
        """Notes a loss beyond last bits: a state or an order that a resumed trial cannot restore."""
        if self._add(sentence):
            self._say(f"this trial is not resumed exactly: {sentence}")

    def tell_once(self, sentence: str) -> None:
        """Tells the first of several sentences that are not about exactness."""
        if not self._told:
            self._told = True
            self._say(sentence)

    def _add(self, sentence: str) -> bool:
        if sentence.partition(";")[0] in {known.partition(";")[0] for known in self.breaks} or len(self.breaks) >= BREAKS_MAX:
            return False
        self.breaks.append(sentence)
        return True

    def record(self) -> bytes:
        """Record for a checkpoint. Cheap. `exact`: nothing is known that would make a resumed trial differ."""
        self.check_settings()
        record = {
            "exact": self.exact and not self.breaks,
            "exact_kernels": self.exact,
            "surroundings": self.surroundings(),
            "breaks": self.breaks,
            "not_searched": self.not_searched,
        }
        return json.dumps(record, indent=1, sort_keys=True).encode()

    def resume(self, record: bytes) -> None:
        """Adopts the record of a checkpoint, and tells what is different on this machine."""
        saved = json.loads(record)
        for sentence in saved["breaks"]:
            self._add(sentence)
        if not self.exact:
            return
        if not saved.get("exact_kernels", saved["exact"]):
            self.note("it was trained without exact kernels before")
        here = self.surroundings()
        for name in sorted(saved["surroundings"].keys() | here.keys()):
            before, now = saved["surroundings"].get(name, "not known"), here.get(name, "not known")
            if before != now:
                self.note(f"{name} was {before} before this process, and is {now} now")
