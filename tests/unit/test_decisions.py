"""Tables of decisions are read from the functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tenuto.kernel.decision_tables import decisions, joined
from tenuto.schemas.events import EventData


@dataclass(frozen=True)
class Pause:
    pass


def pause(state: Any, command: Pause) -> Sequence[EventData]:
    return []


@dataclass(frozen=True)
class Resume:
    pass


def either(state: Any, data: Pause | Resume) -> Sequence[EventData]:
    return []


def neither(state: Any, order: Any) -> Sequence[EventData]:
    return []


def test_a_command_is_found_by_its_class() -> None:
    assert decisions(pause) == {Pause: pause}


def test_a_function_may_decide_on_several_classes() -> None:
    assert decisions(either, parameter="data") == {Pause: either, Resume: either}


@pytest.mark.parametrize("function", [either, neither])
def test_a_function_that_names_no_command_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match=f"{function.__name__} has no parameter `command` of a class"):
        decisions(function)


def test_no_command_is_decided_on_twice() -> None:
    with pytest.raises(TypeError, match="Pause is decided on twice"):
        decisions(pause, pause)
    with pytest.raises(TypeError, match="Pause is decided on twice"):
        joined({Pause: pause}, {Pause: pause})
