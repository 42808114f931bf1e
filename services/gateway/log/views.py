"""Answers about the log and its readers."""

from __future__ import annotations

from tenuto.schemas.anchors import Anchor
from tenuto.schemas.base import Model
from tenuto.schemas.bus import BusState, LaneBacklog
from tenuto.services.gateway.automations.bodies import AutomationTroubleView
from tenuto.services.gateway.http.request_metrics import DoorView
from tenuto.services.gateway.notices.bodies import WebhookTroubleView
from tenuto.services.gateway.trials.views import SilentTrialView


class TamperedView(Model):
    position: int
    reason: str


class VerifiedView(Model):
    ok: bool
    events: int
    head: int
    head_hash: str
    """Hash in hexadecimal."""
    tampered: TamperedView | None
    """First row that does not fit the chain, or entry that is known elsewhere and that the log does not hold."""
    anchors: int
    """Number of anchors that were compared."""
    unchecked: tuple[str, ...]
    """Targets of anchors that could not be read, each with the reason."""


class AnchoredView(Model):
    anchor: Anchor
    kept: tuple[str, ...]
    """Targets that stored it."""
    failed: dict[str, str]
    """Reason of the failure by target, of the targets that failed."""


class ConsumerView(Model):
    name: str
    position: int
    lag: int
    """Number of recorded events that it has not taken yet."""


class StatusView(Model):
    bus: BusState
    version: str
    head: int
    """Position of the last event."""
    consumers: tuple[ConsumerView, ...]
    parked: int
    """Reports and events that could not be read or handled, kept aside with their reasons."""
    backlog: tuple[LaneBacklog, ...]
    """Reports of agents that are not recorded yet, by agent and lane, the longest first."""
    silent_trials: tuple[SilentTrialView, ...] = ()
    """Trials whose workers have been silent for ten minutes, the longest silent first, twenty at most: they may hang."""
    webhooks: tuple[WebhookTroubleView, ...] = ()
    """Webhooks whose target does not take what is sent, or that have parked notices; twenty at most."""
    automations: tuple[AutomationTroubleView, ...] = ()
    """Automations with parked events or failing rules, and those that are silent; twenty at most."""
    agents: int
    slots: int
    slots_used: int
    context_bytes_max: int = 0
    """Longest packed model directory that a submission may bring."""
    door: DoorView | None = None
