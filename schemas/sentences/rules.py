"""Numbers and sentences of rules: one class per rule, with the numbers as fields and their sentence as a method.

A decision records the rule's name and these numbers (`Numbers.reason`), and no sentence. A reader has the sentence made by the
class of that rule and version, so wording may improve, and old decisions are told in the new words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, TypeVar

from tenuto.schemas.events.registry import Reason

Data = Mapping[str, Any]
"""Subject of a sentence, as JSON: the data of the event that records the reason, or the row of a queue."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Numbers that one rule compared. Each field documents what it counts and its unit; a field with a default is recorded
    only if its value differs."""

    RULES: ClassVar[tuple[str, ...]] = ()
    """Names under which the numbers are recorded: several if rules differ only in their owner."""
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}

    def reason(self, rule: str = "") -> Reason:
        """Reason for an event. `rule`: one of RULES, if there are several."""
        rule = rule or self.RULES[0]
        assert rule in self.RULES, f"{type(self).__name__} is not recorded as {rule}"
        return Reason(rule=rule, numbers=self.recorded())

    def recorded(self) -> dict[str, Any]:
        numbers = dict(self.__dict__)
        for name, usual in self.DEFAULTS.items():
            if numbers[name] == usual:
                del numbers[name]
        return numbers

    def sentence(self, about: Data) -> str:
        """Sentence for people, in plain English. Facts that `about` contains are not among the numbers."""
        raise NotImplementedError


N = TypeVar("N", bound=Numbers)
Forms = tuple[tuple[int, type[Numbers]], ...]
FORMS: dict[tuple[str, str], Forms] = {}
"""(event type, rule) -> its classes with the rule version since which each is recorded, the oldest first."""


def rule(about: str, *names: str, since: int = 1) -> Callable[[type[N]], type[N]]:
    """Register a class of numbers. `about`: type of the events that record it. `names`: names of the rule. If a rule gets
    other numbers, its new class says `since` which rule version of the service it is recorded, and the old class stays."""

    def register(kind: type[N]) -> type[N]:
        kind.RULES = names
        kind.DEFAULTS = {item.name: item.default for item in fields(kind) if item.default is not MISSING}
        for name in names:
            known = FORMS.get((about, name), ())
            assert all(since > before for before, _ in known), f"rule {name} of {about} has two forms since version {since}"
            FORMS[about, name] = (*known, (since, kind))
        return kind

    return register


def form_of(about: str, name: str, version: int) -> type[Numbers] | None:
    """Class for numbers that this version of the service recorded. None: this release does not know the rule."""
    forms = FORMS.get((about, name), ())
    found = [kind for since, kind in forms if since <= version]
    return found[-1] if found else (forms[0][1] if forms else None)
