"""The port behind which frameworks are: what prepares, runs and ends a framework's code in a worker.

A framework is an object that a package declares in the group `tenuto.frameworks` (`frameworks.py` finds it). Each default does
nothing. Agents and all workers import the module of that object, so it imports its library only inside its functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenuto.kernel.clock import Clock
    from tenuto.schemas.assignments import Action, Assignment
    from tenuto.workers.connection.agent_client import Welcome
    from tenuto.workers.connection.directives import DirectiveBox
    from tenuto.workers.harness.reporter import Reports
    from tenuto.workers.harness.script_waits import ScriptWaits
    from tenuto.workers.launch.gang import Gang


@dataclass(frozen=True)
class Worker:
    """One process's part in a trial."""

    welcome: Welcome
    """The agent's: assignment, directories and stores."""
    box: DirectiveBox
    reports: Reports
    clock: Clock
    gang: Gang | None
    """The gang, if this process is one of several ranks."""


class Framework:
    """One framework."""

    # What a run starts from: asked by the agent, and by the warm process that workers are forked from.

    announced_by: tuple[str, ...] = ()
    """Modules whose import in the file of the entrypoint says that the trial uses this framework."""
    usual: bool = False
    """True: it is assumed where the code announces none. One of all frameworks is."""
    variables: tuple[str, ...] = ()
    """Names of variables that `preloads` reads."""

    def preloads(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Modules that a warm process imports for trials of this framework. None: such trials start as usual."""
        return ()

    def must_begin(self, code: bytes) -> bool:
        """True if this file of the user's has to run before the modules are imported, such as one that sets variables which
        they read then."""
        return False

    always_preloads: tuple[str, ...] = ()
    """Modules that every warm process imports, whatever it is for."""
    preloads_if_there: tuple[str, ...] = ()
    """Modules that the library imports when it is first used, which takes time; a version of it may lack them."""
    library: str = ""
    """Module after whose import the next two functions are called. Empty: never."""

    def reseed(self) -> None:
        """Seeds the library's generators from chance, in a process that was forked after its import."""

    def rehearsals(self) -> tuple[Callable[[], None], ...]:
        """First steps of a trial, made in a forked process before it has one: the longest first. They leave no thread, no file
        and no state that a trial would see."""
        return ()

    # In a worker.

    def note_state(self) -> Callable[[], str]:
        """Notes the settings of the library that all code of a process shares: called before a run, where the library is
        imported. The returned function gives them back after it, so that another run can begin in this process, and returns the
        reason why none can; empty: all is as it was."""
        return lambda: f"it has imported {self.library}, whose state cannot be given back"

    def end_helpers(self) -> None:
        """Ends helper processes that the library has started for a run which is over, such as those of its data loaders."""

    trial_class: str = ""
    """Name of the class that users derive a trial from. Empty: there is none."""
    strategies: frozenset[str] = frozenset()
    """Values of distributed.strategy whose ranks `connect` prepares."""

    lost_errors: frozenset[str] = frozenset()
    """Names of the errors by which the library says that another rank is gone."""

    def enter(self, assignment: Assignment, gang: Gang | None) -> None:
        """Called before any of the user's code is loaded, whatever framework it uses."""

    def runs(self, entrypoint: str) -> bool:
        """True for an entrypoint that is no `module:Class` and that `run` trains."""
        return False

    def run(self, worker: Worker) -> Action:
        """Trains an entrypoint of this framework's. Returns the action by which the agent wanted this worker to leave. Raises
        AgentGone, UserError, or the error of the user's code."""
        raise NotImplementedError

    def connect(self, gang: Gang) -> None:
        """Prepares the way by which the user's own code finds the other ranks. Raises UserError."""

    def watch_waits(self, waits: ScriptWaits) -> None:
        """Makes what a script waits for in the library known to `waits`, once it is imported."""

    def leave(self, gang: Gang) -> None:
        """Called on every rank that leaves in order."""
