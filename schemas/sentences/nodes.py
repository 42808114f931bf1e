"""Reasons why nodes are requested, given up and given back: the numbers of the launcher's rules, with their sentences."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.events.node import NodeFailed, NodeReleased, NodeRequested
from tenuto.schemas.sentences.amounts import duration, slots, times
from tenuto.schemas.sentences.rules import Data, Numbers, rule

# Requested.


@rule(NodeRequested.TYPE, "demand")
@dataclass(frozen=True, kw_only=True)
class NodeForDemand(Numbers):
    """A gang waits that no free slots, and no slots of nodes that are coming, will serve."""

    experiment: int
    """Experiment of the gang."""
    slots_wanted: int
    """Slots that the gang lacks."""
    slots_coming: int
    """Slots of these that it gets on nodes that are coming."""
    nodes: int
    """Nodes that are requested together for it."""
    nodes_now: int
    """Nodes on record, those that are starting or ending included."""
    nodes_max: int
    types_passed: int = 0
    """Types of nodes before this one in the pool's order that would serve and cannot be had now."""
    cost_per_hour: float = 0.0
    """Cost of all nodes on record."""
    cost_per_hour_max: float | None = None
    """None: no limit."""
    workspace_cost_per_hour: float = 0.0
    """Cost of the nodes that count for the gang's workspace."""
    workspace_cost_per_hour_max: float | None = None
    """None: the workspace has no limit of its own."""

    def sentence(self, about: Data) -> str:
        coming = f", of which it gets {self.slots_coming} on nodes that are coming" if self.slots_coming else ""
        others = f" of {self.nodes} together" if self.nodes > 1 else ""
        passed = (
            f" {times(self.types_passed, 'type')} of nodes that would come first cannot be had now." if self.types_passed else ""
        )
        cost = ""
        if self.cost_per_hour_max is not None:
            cost = f" They cost {self.cost_per_hour:g} an hour, and may cost {self.cost_per_hour_max:g}."
        if self.workspace_cost_per_hour_max is not None:
            cost += (
                f" Those of workspace {about.get('workspace', '')} cost {self.workspace_cost_per_hour:g} an hour, and may cost"
                f" {self.workspace_cost_per_hour_max:g}."
            )
        return (
            f"A gang of experiment {self.experiment} lacks {slots(self.slots_wanted)}{coming}; this node is one{others} for it."
            f" The pool has {times(self.nodes_now, 'node')} of at most {self.nodes_max}.{passed}{cost}"
        )


@rule(NodeRequested.TYPE, "minimum")
@dataclass(frozen=True, kw_only=True)
class NodeForMinimum(Numbers):
    """The pool keeps some nodes whether work waits or not."""

    nodes_kept: int
    """Nodes of the pool that are not ending."""
    nodes_min: int

    def sentence(self, about: Data) -> str:
        return f"The pool keeps {times(self.nodes_min, 'node')} at least, and has {self.nodes_kept}."


# Given up.


def _again(failures: int, seconds: float) -> str:
    row = f" ({failures} times in a row)" if failures > 1 else ""
    return f"{row}; nodes of this type are asked for again in {duration(seconds)}"


@rule(NodeFailed.TYPE, "start")
@dataclass(frozen=True, kw_only=True)
class StartFailed(Numbers):
    """The provider did not start it."""

    failures: int
    """Failures of nodes of this type in a row, this one included."""
    retry_seconds: float

    def sentence(self, about: Data) -> str:
        why = {
            "capacity": "The provider has no such node now",
            "quota": "The provider's quota is used up",
            "refused": "The provider refuses the node",
        }.get(str(about.get("failure", "")), "The node did not start")
        return f"{why}{_again(self.failures, self.retry_seconds)}."


@rule(NodeFailed.TYPE, "ended_early")
@dataclass(frozen=True, kw_only=True)
class EndedEarly(Numbers):
    """The provider says that it has ended, and its agent had never joined."""

    failures: int
    """Failures of nodes of this type in a row, this one included."""
    retry_seconds: float

    def sentence(self, about: Data) -> str:
        return f"The node ended before its agent had joined{_again(self.failures, self.retry_seconds)}."


@rule(NodeFailed.TYPE, "not_joined")
@dataclass(frozen=True, kw_only=True)
class JoinOverdue(Numbers):
    waited_seconds: float
    """Time since the node was first seen running."""
    join_seconds: float
    """Longest such time of the pool."""
    failures: int
    """Failures of nodes of this type in a row, this one included."""
    retry_seconds: float

    def sentence(self, about: Data) -> str:
        return (
            f"The node has run for {duration(self.waited_seconds)} and its agent has not joined, for which it has"
            f" {duration(self.join_seconds)}{_again(self.failures, self.retry_seconds)}."
        )


@rule(NodeFailed.TYPE, "image_missing")
@dataclass(frozen=True, kw_only=True)
class NodeImageMissing(Numbers):
    """The image that its trial names, in which it was to run as a whole, cannot be pulled."""

    image: str
    failures: int
    """Failures of nodes of this type in this image in a row, this one included."""
    retry_seconds: float

    def sentence(self, about: Data) -> str:
        row = f" ({self.failures} times in a row)" if self.failures > 1 else ""
        return (
            f"The image {self.image}, which the trial names, cannot be pulled where the node is{row}; it is tried again in"
            f" {duration(self.retry_seconds)}."
        )


@rule(NodeFailed.TYPE, "lost")
@dataclass(frozen=True, kw_only=True)
class NodeLost(Numbers):
    """A node in service was lost."""

    served_seconds: float
    """Time since its agent joined."""
    by_agent: bool
    """True: nothing is heard of its agent. False: its provider does not have it any more."""
    notice: str = ""
    """Words of the provider on that end before it; empty: it gave no notice."""

    def sentence(self, about: Data) -> str:
        what = "Nothing is heard of the node's agent" if self.by_agent else "The provider does not have the node any more"
        before = f", and of whose end its provider had given notice ({self.notice})" if self.notice else ""
        return f"{what}, which had been in service for {duration(self.served_seconds)}{before}."


# Given back.


@rule(NodeReleased.TYPE, "idle")
@dataclass(frozen=True, kw_only=True)
class NodeIdle(Numbers):
    idle_seconds: float
    """Time without work."""
    idle_seconds_max: float
    nodes_kept: int
    """Nodes of the pool that are not ending, without those in images."""
    nodes_min: int
    used: bool = True
    """False: nothing ever ran on it."""
    retry_seconds: float = 0.0
    """Seconds until nodes of its type are requested again, if nothing ever ran on it."""
    image: str = ""
    """Image that it runs in as a whole; empty: none, and it counts for `nodes_min`."""

    def sentence(self, about: Data) -> str:
        never = (
            ""
            if self.used
            else f" Nothing ever ran on it, so nodes of its type are not asked for {duration(self.retry_seconds)}."
        )
        kept = f"the pool keeps {times(self.nodes_min, 'node')} at least, and has {self.nodes_kept}"
        if self.image:
            kept = f"it runs in the image {self.image}, and such nodes are not among those that a pool keeps"
        return (
            f"The node has had no work for {duration(self.idle_seconds)}, and is given back after"
            f" {duration(self.idle_seconds_max)}; {kept}.{never}"
        )


@rule(NodeReleased.TYPE, "not_needed")
@dataclass(frozen=True, kw_only=True)
class NodeNotNeeded(Numbers):
    """A node that is still coming is released, as no gang waits for it any more."""

    waited_seconds: float
    """Time since it was requested, or since the queue last changed."""
    idle_seconds_max: float

    def sentence(self, about: Data) -> str:
        return (
            f"Nothing that waits needs this node, for {duration(self.waited_seconds)}; a pool's nodes are given back after"
            f" {duration(self.idle_seconds_max)} without work."
        )


@rule(NodeReleased.TYPE, "group_failed")
@dataclass(frozen=True, kw_only=True)
class NodeGroupFailed(Numbers):
    group: str
    """Node id of the first of those that were requested together."""

    def sentence(self, about: Data) -> str:
        return f"Another node of its group ({self.group}) failed, and nothing else that waits needs this one."


@rule(NodeReleased.TYPE, "requested")
@dataclass(frozen=True, kw_only=True)
class NodeGivenBack(Numbers):
    """A user gave it back."""

    allocations: int
    """Allocations on it."""

    def sentence(self, about: Data) -> str:
        if not self.allocations:
            return "A user gave the node back; nothing runs on it."
        left = "saves a checkpoint and goes on elsewhere" if about.get("drain") is False else "ends there first"
        return f"A user gave the node back; what runs on it ({times(self.allocations, 'allocation')}) {left}."


@rule(NodeReleased.TYPE, "agent_left")
@dataclass(frozen=True, kw_only=True)
class NodeAgentLeft(Numbers):
    served_seconds: float
    """Time since its agent joined."""
    notice: str = ""
    """Words of the machine's provider on the end; empty: it gave no notice."""

    def sentence(self, about: Data) -> str:
        why = f", as its provider gave notice ({self.notice})" if self.notice else ""
        return f"The node's agent said that it ends{why}, after {duration(self.served_seconds)} in service."


@rule(NodeReleased.TYPE, "over_limit")
@dataclass(frozen=True, kw_only=True)
class NodeOverLimit(Numbers):
    """The limits were lowered."""

    nodes_kept: int
    """Nodes of the pool that are not ending, this one included."""
    nodes_max: int
    cost_per_hour: float = 0.0
    """Cost of these nodes."""
    cost_per_hour_max: float | None = None
    """None: no limit."""

    def sentence(self, about: Data) -> str:
        cost = ""
        if self.cost_per_hour_max is not None:
            cost = f" for {self.cost_per_hour:g} an hour, and may cost {self.cost_per_hour_max:g}"
        return f"The pool may have {times(self.nodes_max, 'node')} and has {self.nodes_kept}{cost}."


@rule(NodeReleased.TYPE, "makes_room")
@dataclass(frozen=True, kw_only=True)
class NodeMakesRoom(Numbers):
    """The limits leave no room for another type of nodes, for which a gang waits."""

    experiment: int
    """Experiment of the gang."""
    slots_wanted: int
    waited_seconds: float
    """Time that the gang has waited."""
    nodes_wanted: int
    """Nodes that it needs."""
    nodes_now: int
    """Nodes on record, those that are starting or ending included."""
    nodes_max: int

    def sentence(self, about: Data) -> str:
        return (
            f"Experiment {self.experiment} has waited {duration(self.waited_seconds)} for {slots(self.slots_wanted)}, which this"
            f" node cannot serve; it needs {times(self.nodes_wanted, 'node')} more, and the pool has {self.nodes_now} of at most"
            f" {self.nodes_max}, so this one makes room."
        )


@rule(NodeReleased.TYPE, "provisioner_changed")
@dataclass(frozen=True, kw_only=True)
class NodeProvisionerChanged(Numbers):
    provisioner: str
    """The pool's present one."""

    def sentence(self, about: Data) -> str:
        return f"The pool's nodes come from another provisioner now ({self.provisioner}); what runs on this one ends there first."


@rule(NodeReleased.TYPE, "image_not_allowed")
@dataclass(frozen=True, kw_only=True)
class NodeImageNotAllowed(Numbers):
    image: str
    """Image that it runs in as a whole."""

    def sentence(self, about: Data) -> str:
        return f"The pool's nodes may not run in the image {self.image} any more; what runs on this one ends there first."


@rule(NodeReleased.TYPE, "outdated")
@dataclass(frozen=True, kw_only=True)
class NodeOutdated(Numbers):
    """A node without work is released, as it was started with another installation of Tenuto than new nodes get."""

    idle_seconds: float
    """Time without work."""

    def sentence(self, about: Data) -> str:
        return (
            "The node has another installation of Tenuto than new ones get, and nothing runs on it: it makes way for a new one."
        )
