"""Description of where a pool's nodes come from: the provisioner with its settings, the types of nodes, and the limits."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from tenuto.schemas.base import Model
from tenuto.schemas.config.resources import SLOTS_MAX
from tenuto.schemas.image_patterns import ImagePattern, fits_any
from tenuto.schemas.names import NAME_PATTERN

STATIC = "static"
"""Name that stands for no provisioner: people start the pool's agents, and none of its nodes is started or ended here."""
NODE_TYPES_MAX = 20
WORKSPACES_MAX = 500
"""Most workspaces with a limit of their own in one pool: the settings are one event."""
NODE_IMAGES_MAX = 100
"""Most patterns of images of one type of nodes, as many as a workspace may have."""
NODES_MAX = 1_000
"""Most nodes of one pool."""
SETTINGS_MAX = 50
"""Most settings of a provisioner, or of a type of nodes."""
Settings = Annotated[
    dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")], Annotated[str, Field(max_length=2_000)]],
    Field(max_length=SETTINGS_MAX),
]
"""Settings of the provisioner's own, such as a partition; its adapter checks their names. No secrets: they are recorded."""


class NodeType(Model):
    """Nodes that are alike. The types of a pool are asked for in their order: a later one if an earlier one cannot be had."""

    name: str = Field(default="default", pattern=NAME_PATTERN)
    slots: int = Field(default=1, ge=1, le=SLOTS_MAX)
    """Slots that an agent on such a node offers."""
    device: str = Field(default="", max_length=100)
    """Name of its slots' devices as the driver gives it, or "cpu". Empty: not known, so it serves any demand."""
    labels: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(max_length=50)] = ()
    """Labels of its agents, each `key=value`."""
    images: bool = False
    """True: its agents run trials that name an image."""
    node_images: Annotated[tuple[ImagePattern, ...], Field(max_length=NODE_IMAGES_MAX, exclude_if=lambda value: not value)] = ()
    """Images in which such a node may run as a whole, agent and trials, for a trial that names one; `*` stands for any text.
    Empty: none, so all its nodes run in the environment that the settings give."""
    cost_per_hour: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False)
    """Price of one node for an hour, in the currency of the limits. 0: nothing."""
    settings: Settings = {}
    """Settings of nodes of this type, which override the provisioner's."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.images and self.node_images:
            raise ValueError(
                f"type of nodes {self.name} has both images and node_images: its nodes run trials either in containers of their"
                " own or in one image as a whole; make two types of it"
            )
        return self

    def runs_in(self, image: str) -> bool:
        """True if such a node may run in the image as a whole."""
        return bool(image) and fits_any(self.node_images, image)


class Provisioning(Model):
    """Common fields of PoolProvisioned and the request for it."""

    provisioner: str = Field(default=STATIC, pattern=NAME_PATTERN)
    """Name of the plug-in of the launcher that starts and ends nodes. static: none does."""
    settings: Settings = {}
    node_types: Annotated[tuple[NodeType, ...], Field(min_length=1, max_length=NODE_TYPES_MAX)] = (NodeType(),)
    nodes_min: int = Field(default=0, ge=0, le=NODES_MAX)
    """Nodes that are kept, whether work waits or not."""
    nodes_max: int = Field(default=10, ge=0, le=NODES_MAX)
    """Most nodes at once, those that are starting or ending included."""
    cost_per_hour_max: float | None = Field(default=None, ge=0, le=1e9, allow_inf_nan=False)
    """Most that all nodes of the pool may cost per hour. None: no limit."""
    workspace_cost_per_hour_max: Annotated[
        dict[Annotated[str, Field(pattern=rf"^\*$|{NAME_PATTERN}")], Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]],
        Field(max_length=WORKSPACES_MAX, exclude_if=lambda value: not value),
    ] = {}
    """The same for the nodes of one workspace, by its name; `*`: for each workspace that is not named. A node counts for the
    workspace that it was requested for until it ends, and for others by the slots that their trials use there."""
    idle_seconds: float = Field(default=600.0, ge=10, le=604_800, allow_inf_nan=False)
    """A node without work for so long is given back."""
    join_seconds: float = Field(default=900.0, ge=10, le=604_800, allow_inf_nan=False)
    """Time from the start of a node until its agent has joined; a node that takes longer has failed. Waiting in the provider's
    own queue does not count."""

    @property
    def starts_nodes(self) -> bool:
        return self.provisioner != STATIC

    @property
    def node_images(self) -> tuple[str, ...]:
        """Images in which any of its nodes may run as a whole."""
        return tuple(dict.fromkeys(pattern for node_type in self.node_types for pattern in node_type.node_images))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.nodes_min > self.nodes_max:
            raise ValueError(f"nodes_min ({self.nodes_min}) is more than nodes_max ({self.nodes_max})")
        names = [item.name for item in self.node_types]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two types of nodes are named {twice[0]}")
        return self
