"""Labels of agents, from the setting to the event that the scheduler places by."""

from __future__ import annotations

import pytest

from tenuto.kernel.decision import step
from tenuto.schemas.assignments import Heartbeat
from tenuto.schemas.events.agent import AgentJoined, Slot
from tenuto.schemas.ids import name_id
from tenuto.services.launcher.commands import RecordHeartbeat
from tenuto.services.launcher.core import LauncherCore
from tenuto.workers.agent.checked_settings import AgentError, labels_of


def test_a_heartbeat_with_other_labels_joins_again() -> None:
    core = LauncherCore()
    state = core.initial()
    joined = []
    for number, setting in enumerate(("", "rack=7, disk=fast", "disk=fast,rack=7", "rack=8")):
        beat = Heartbeat(
            agent_id="a", spool_id="s", pool="default", host="h", version="1", allocations=(), labels=labels_of(setting),
            slots=(Slot(slot_id=0, kind="cpu", device="cpu"),),
        )  # fmt: skip
        command = RecordHeartbeat(name_id("beat", str(number)), 0, beat, True)
        state, events = step(core, state, command, seen_position=0, time_us=0)
        joined += [event.data.labels for event in events if isinstance(event.data, AgentJoined)]
    assert joined == [(), ("disk=fast", "rack=7"), ("rack=8",)]
    assert core.load(core.dump(state)) == state


@pytest.mark.parametrize("setting", ["rack", "=7", "rack=,disk=fast"])
def test_a_label_without_key_or_value_is_refused(setting: str) -> None:
    with pytest.raises(AgentError, match="must be key=value, such as rack=7,disk=fast"):
        labels_of(setting)
