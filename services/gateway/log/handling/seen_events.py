"""Judges which events a user may see: those of experiments by their workspace, the others by their subject.

Users who see all workspaces get events as they are. For others an event costs a look into a table of experiments that all clients
share, as the workspace of an experiment never changes; a user's rights are looked up anew when any rights have changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tenuto.kernel.eventlog import EventLog
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.notice import WebhookCreated
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ShareChanged
from tenuto.services.gateway.experiments.state import ExperimentsState
from tenuto.services.gateway.rights.access import DEFAULT, Access, Principal, Sight, sight
from tenuto.services.gateway.trials.adapters.records import Records

KEPT_MAX = 100_000
"""Most experiments whose workspace is remembered: some megabytes. Beyond it the oldest are read again from the log."""
Judge = Callable[[Sequence[Event]], Awaitable[Sequence[Event]]]
"""Returns those of the events that its user may see now."""


class SeenEvents:
    def __init__(self, log: EventLog, state: Callable[[], ExperimentsState], folded: Callable[[int], Awaitable[None]]) -> None:
        """`folded`: returns when the state has all events up to a position."""
        self._records, self._state, self._folded = Records(log), state, folded
        self._workspaces: dict[int, str] = {}

    def judge(self, subject_now: Callable[[], Principal]) -> Judge:
        """Judge for one client, whose subject is looked up again at each page: roles are granted and revoked meanwhile."""
        known: tuple[Access, Principal, Sight] | None = None

        async def judged(events: Sequence[Event]) -> Sequence[Event]:
            nonlocal known
            if events:  # else who was just granted a role would not hear of it, and who lost one would hear more
                await self._folded(events[-1].position)
            access, subject = self._state().access, subject_now()
            if known is None or known[0] is not access or known[1] != subject:
                known = access, subject, sight(access, subject)
            seen = known[2]
            if seen.everything:
                return events
            return [event for event in events if await self._is_seen(event, seen, subject)]

        return judged

    async def _is_seen(self, event: Event, seen: Sight, subject: Principal) -> bool:
        if event.correlation_id:
            workspace = self._workspaces.get(int(event.correlation_id)) or await self._found(int(event.correlation_id))
            if not seen.sees(workspace):
                return False
        kind, _, key = event.stream.partition("/")
        if kind == "notice" or event.type.startswith("Webhook"):
            return self._owner(event, key) == subject.name and not subject.workspace
        if kind == "node" and isinstance(experiment := _experiment_of(event), int):
            return seen.sees(self._workspaces.get(experiment) or await self._found(experiment))
        if event.correlation_id or kind in ("agent", "node"):
            return True
        return event.stream == "request/cluster" and _about(event) not in seen.hidden

    def _owner(self, event: Event, key: str) -> str:
        """Creator of the webhook that the event is about. Empty: it is removed."""
        if isinstance(event.data, WebhookCreated):
            return event.data.owner
        webhook = self._state().notices.webhooks.get(getattr(event.data, "name", key))
        return "" if webhook is None else webhook.owner

    async def _found(self, experiment_id: int) -> str:
        live = self._state().live.get(experiment_id)
        if live is not None:
            workspace = live.workspace
        else:
            submitted = await self._records.submitted(experiment_id)
            if submitted is None and experiment_id in self._state().unmanaged:
                return DEFAULT
            if submitted is None:  # it is not submitted, so nothing of it is on record
                return ""
            workspace = submitted.config.resources.workspace
        if len(self._workspaces) >= KEPT_MAX:
            del self._workspaces[next(iter(self._workspaces))]
        self._workspaces[experiment_id] = workspace
        return workspace


def _experiment_of(event: Event) -> object:
    """Experiment for which a node was requested, by the reason of the event; None: for no experiment."""
    reason = getattr(event.data, "reason", None)
    return reason.numbers.get("experiment") if isinstance(reason, Reason) else None


def _about(event: Event) -> str:
    """Workspace that a request about the cluster names; empty: none."""
    data = event.data
    if isinstance(data, ShareChanged):
        return data.name if data.owner == "workspace" else ""
    return getattr(data, "workspace", None) or ""
