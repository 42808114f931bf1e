"""Workspaces, and the experiments that they take. Pure."""

from __future__ import annotations

from typing import Protocol

from tenuto.kernel.core import Refused
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.image_patterns import fits_any, shown
from tenuto.schemas.sentences.amounts import stored
from tenuto.services.gateway.rights.access import DEFAULT, PROJECTS_MAX, WORKSPACES_MAX, Principal, Project, workspace_of
from tenuto.services.gateway.rights.permissions import CREATES_EXPERIMENT, PermissionRule, refusal
from tenuto.services.gateway.rights.state import PeopleState


class WorkspaceCommand(Protocol):
    """Command of a user in a workspace."""

    @property
    def user(self) -> str: ...

    @property
    def workspace(self) -> str | None: ...


def check_place(state: PeopleState, subject: Principal, workspace: str, project: str) -> None:
    """Checks that the subject may submit an experiment there. Raises Refused."""
    if why := refusal(state.access, subject, CREATES_EXPERIMENT, workspace=workspace):
        raise Refused(why, "forbidden")
    found = workspace_of(state.access, workspace)
    if found.archived:
        hint = f"`tenuto workspace unarchive {workspace}` opens it again"
        raise Refused(f"Workspace {workspace} is archived, so it takes no new experiments; {hint}.", "conflict")
    if not is_known(state, workspace):
        check_room(state)
    if project:
        check_project(state, workspace, project, begins=True)


def check_limits(state: PeopleState, config: ExperimentConfig) -> None:
    """Checks a new experiment against the workspace's limits. Raises Refused."""
    resources = config.resources
    check_priority(state, resources.workspace, resources.priority)
    if resources.slots_max:
        single = config.searcher.ONE_TRIAL
        check_slots(state, resources.workspace, resources.max_slots or (resources.slots_max if single else None))
        check_slots(state, resources.workspace, resources.slots_max)  # of one trial, whatever the experiment says of all
    check_image(state, resources.workspace, config.environment.image)
    check_wall_hours(state, resources.workspace, resources.max_wall_hours)


def check_priority(state: PeopleState, workspace: str, priority: int) -> None:
    """Raises Refused."""
    limits = workspace_of(state.access, workspace)
    if not limits.priority_min <= priority <= limits.priority_max:
        raise Refused(
            f"Workspace {workspace} takes priorities from {limits.priority_min} to {limits.priority_max}, and this is {priority}"
            "; ask for one of these, or an admin of the workspace for others.",
            "forbidden",
        )


def check_slots(state: PeopleState, workspace: str, slots: int | None) -> None:
    """Checks the workspace's limit of slots. `slots`: most that the experiment uses at once; None: as many as there are. Raises
    Refused."""
    limit = workspace_of(state.access, workspace).slots_max
    if limit and (slots is None or slots > limit):
        asked = "any number" if slots is None else str(slots)
        raise Refused(
            f"Experiments of workspace {workspace} use {limit} slots at most, and this one asks for {asked}: "
            f"say at most {limit} in resources.max_slots and slots_per_trial, or ask an admin of the workspace for more.",
            "forbidden",
        )


def check_image(state: PeopleState, workspace: str, image: str | None) -> None:
    """Checks that the workspace allows the image. An experiment without one runs in the environment of the agents, which is their
    operator's. Raises Refused."""
    allowed = workspace_of(state.access, workspace).images
    if not allowed or image is None or fits_any(allowed, image):
        return
    raise Refused(
        f"Workspace {workspace} allows the images {shown(allowed)}, and environment.image is {image}; name one of these, or ask "
        "an admin of the workspace for another.",
        "forbidden",
    )


def check_wall_hours(state: PeopleState, workspace: str, hours: float | None) -> None:
    """Checks the workspace's limit of run time. `hours`: longest time that the experiment may run by its configuration; None: as
    long as the workspace lets it. Raises Refused."""
    limit = workspace_of(state.access, workspace).wall_hours_max
    if limit and hours is not None and hours > limit:
        raise Refused(
            f"Experiments of workspace {workspace} run for {limit:g} h at most, and resources.max_wall_hours is {hours:g}: "
            f"say at most {limit:g}, or leave it out, or ask an admin of the workspace for more.",
            "forbidden",
        )


def check_storage(state: PeopleState, workspace: str, stored_bytes: int | None) -> None:
    """Checks the workspace's limit of storage. `stored_bytes`: size of its checkpoints, as the views say; None: not counted.
    Raises Refused."""
    limit = workspace_of(state.access, workspace).storage_bytes_max
    if limit and stored_bytes is not None and stored_bytes >= limit:
        raise Refused(
            f"The checkpoints of workspace {workspace} have {stored(stored_bytes)}, and it may have {stored(limit)}, so it takes "
            "no new experiments; delete experiments (`tenuto exp delete`), or ask an admin of the workspace for more.",
            "forbidden",
        )


def check_project(state: PeopleState, workspace: str, project: str, *, begins: bool = False) -> None:
    """Checks that the project takes an experiment. `begins`: True: a missing project is made with its first experiment. Raises
    Refused."""
    projects = workspace_of(state.access, workspace).projects
    if project not in projects:
        if not begins:
            raise no_project(workspace, project)
        check_room_for_project(state, workspace)
    if projects.get(project, Project()).archived:
        hint = f"`tenuto project unarchive {project} -w {workspace}` opens it again"
        raise Refused(f"Project {project} of workspace {workspace} is archived, so it takes no experiments; {hint}.", "conflict")


def is_known(state: PeopleState, workspace: str) -> bool:
    return workspace == DEFAULT or workspace in state.access.workspaces


def no_workspace(name: str) -> Refused:
    return Refused(f"There is no workspace {name}; `tenuto workspace ls` lists those that you see.", "not_found")


def no_project(workspace: str, name: str) -> Refused:
    hint = f"`tenuto project ls -w {workspace}` lists those that there are"
    return Refused(f"There is no project {name} in workspace {workspace}; {hint}.", "not_found")


def check_workspace(state: PeopleState, command: WorkspaceCommand, rule: PermissionRule) -> None:
    """Raises Refused."""
    assert command.workspace is not None
    if not is_known(state, command.workspace):
        raise no_workspace(command.workspace)
    if why := refusal(state.access, state.subject(command.user), rule, workspace=command.workspace):
        raise Refused(why, "forbidden")


def check_room(state: PeopleState) -> None:
    """Raises Refused."""
    if len(state.access.workspaces) >= WORKSPACES_MAX:
        raise Refused(f"There are {WORKSPACES_MAX} workspaces, and no more are kept; use one of them.", "conflict")


def check_room_for_project(state: PeopleState, workspace: str) -> None:
    """Raises Refused."""
    if len(workspace_of(state.access, workspace).projects) >= PROJECTS_MAX:
        raise Refused(f"Workspace {workspace} has {PROJECTS_MAX} projects, and no more are kept; use one of them.", "conflict")
