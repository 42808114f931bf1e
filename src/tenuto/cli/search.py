"""search run: a search of the user's own, as a process beside the cluster.

The process holds nothing that counts. It tells the class every event of the experiment from the start on; what the class
decides on an event is sent to the cluster with that event's id, and recorded once per event. So it may be killed at any time:
the next one tells a new object the same events, finds on record what was decided, and goes on behind it.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import inspect
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.common import ExperimentId, client, notice
from tenuto.cli.errors import CliError, UsageError
from tenuto.cli.exit_status import EXIT_NOT_COMPLETED
from tenuto.cli.say import say
from tenuto.client.errors import ClientError, Refused

if TYPE_CHECKING:
    from tenuto.client.blocking.client import Client
    from tenuto.schemas.envelope import Event
    from tenuto.schemas.operations import Operation
    from tenuto.search import CustomSearcher, Told

app = typer.Typer(no_args_is_help=True)
ENDS = ("ExperimentCompleted", "ExperimentFailed", "ExperimentCanceled")
OPERATIONS_SHOWN_MAX = 3
"""Most operations of one decision that are shown in a line."""

Spec = Annotated[str, typer.Argument(metavar="FILE:CLASS", help="Your class, such as my_search.py:MySearch.")]


@app.callback()
def searches() -> None:
    pass


@app.command()
def run(
    context: typer.Context,
    searcher: Spec,
    experiment: ExperimentId,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="The class was changed: what was decided before stands, and it decides from now on."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print each decision.")] = False,
) -> None:
    """Decide an experiment that has `searcher: {name: custom}` by your own class, until it ends. Run it again after a crash: it
    goes on exactly where it was."""
    run_search(client(context), load(searcher), searcher, experiment, changed=changed, quiet=quiet)


def own_search(spec: str | None, method: str, *, follow: bool) -> type[CustomSearcher] | None:
    """The class that `exp create` is to run. Raises CliError where the options do not fit, before anything is submitted."""
    if spec is None:
        return None
    if method != "custom":
        raise CliError(f"--searcher runs a search of your own, but searcher.name is {method}: set it to custom.")
    if follow:
        raise CliError("--searcher prints its own decisions: leave out --follow; `tenuto exp wait ID --follow` shows the trials.")
    return load(spec)


def _check_hooks(path: Path, kind: type[CustomSearcher]) -> None:
    """Raises CliError for a method that nothing would call, or that cannot be called as it will be."""
    from tenuto.search import CustomSearcher

    hooks = [name for name in dir(CustomSearcher) if name.startswith("on_")]
    for name in (name for name in dir(kind) if name.startswith("on_")):
        if name not in hooks:
            near = difflib.get_close_matches(name, hooks, n=1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(hooks)}."
            raise CliError(f"{path}: {kind.__name__}.{name} would never be called; {meant}")
        expected = list(inspect.signature(getattr(CustomSearcher, name)).parameters.values())
        by_name = {parameter.name: None for parameter in expected if parameter.kind is parameter.KEYWORD_ONLY}
        try:
            inspect.signature(getattr(kind, name)).bind(*[None] * (len(expected) - len(by_name)), **by_name)
        except TypeError:
            form = ", ".join(parameter.name for parameter in expected)
            raise CliError(f"{path}: {kind.__name__}.{name} must take ({form}).") from None


def load(spec: str) -> type[CustomSearcher]:
    """The class in `FILE:CLASS`; its directory can be imported from. Raises CliError."""
    from tenuto.search import CustomSearcher

    file, colon, name = spec.rpartition(":")
    path = Path(file)
    if not colon or not name.isidentifier() or path.suffix != ".py":
        raise UsageError(f"{spec!r} does not name a class: give a file and a class in it, such as my_search.py:MySearch.")
    if not path.is_file():
        raise CliError(f"There is no file {path}: give the file of your search's class.")
    sys.path.insert(0, str(path.parent.resolve()))
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[path.stem] = module
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        traceback.print_exc()
        raise CliError(f"{path} cannot be imported ({type(error).__name__}: {error}).") from error
    kind = getattr(module, name, None)
    if not (isinstance(kind, type) and issubclass(kind, CustomSearcher)):
        raise CliError(f"{path} has no class {name} that is a tenuto.search.CustomSearcher.")
    _check_hooks(path, kind)
    return kind


def run_search(
    rest: Client, kind: type[CustomSearcher], spec: str, experiment: int, *, changed: bool = False, quiet: bool = False
) -> None:
    """Runs the class until the experiment has ended. Raises CliError if the class contradicts the record, or fails."""
    from tenuto.schemas.envelope import decode_event

    view = rest.get(f"/experiments/{experiment}")
    if view["method"] != "custom":
        raise CliError(f"Experiment {experiment} is searched by {view['method']}: set searcher.name to custom.")
    head = int(rest.get("/status")["head"])
    runner = _Runner(rest, kind, spec, experiment, changed=changed, quiet=quiet)
    for body in rest.event_bodies(upto=head, experiment=experiment):
        runner.note(decode_event(body))
    before = len(runner.recorded)
    for body in rest.event_bodies(upto=head, experiment=experiment):
        if runner.take(decode_event(body)):
            return
    if before and not quiet:
        say(f"{runner.name} goes on: its {before} decisions up to position {head} are on record.", flush=True)
    for _, body in rest.follow(head, experiment):
        if runner.take(decode_event(body)):
            return


class _Runner:
    def __init__(
        self, rest: Client, kind: type[CustomSearcher], spec: str, experiment: int, *, changed: bool, quiet: bool
    ) -> None:
        self.name = f"{Path(spec.rpartition(':')[0]).name}:{kind.__name__}"
        self.recorded: dict[str, bytes] = {}
        """Digest of the recorded operations, by the id of the event that they were decided on."""
        self._rest, self._kind, self._experiment = rest, kind, experiment
        self._changed, self._quiet = changed, quiet
        self._last = 0
        """Position of the last event that was decided on before this process began."""
        self._told: Told | None = None

    def note(self, event: Event) -> None:
        """Notes operations that are on record already, before the class is told of any event."""
        from tenuto.schemas.events.request import SearchOperationsRequested

        if isinstance(event.data, SearchOperationsRequested):
            self.recorded[event.data.cause_id] = _digest(event.data.operations)
            self._last = max(self._last, event.data.cause_position)

    def take(self, event: Event) -> bool:
        """Tells the class, and sends what it decides. Returns whether the experiment has ended."""
        from tenuto.schemas.events.request import ExperimentSubmitted, SearchOperationsRequested

        if isinstance(event.data, ExperimentSubmitted):
            self._told = self._protected(event, lambda: self._made(event.data))
            return False
        if isinstance(event.data, SearchOperationsRequested):
            if event.data.cause_id not in self.recorded and not self._changed:
                self._differs(event.data.cause_position, "nothing", _words(event.data.operations))
            return False
        if event.type in ENDS:
            return self._ended(event)
        told = self._told
        assert told is not None, "an experiment begins with its submission"
        operations = self._protected(event, lambda: told.tell(event))
        self._settle(event, operations)
        return False

    def _made(self, submitted: Any) -> Told:
        from tenuto.search import Told

        return Told(self._kind, submitted)

    def _settle(self, event: Event, operations: Sequence[Operation]) -> None:
        was = self.recorded.get(str(event.id))
        if was is not None:
            if was != _digest(operations) and not self._changed:
                self._differs(event.position, _words(operations), "something else")
        elif operations and event.position < self._last:
            if not self._changed:
                self._differs(event.position, _words(operations), "nothing")
        elif operations:
            self._send(event, operations)

    def _send(self, event: Event, operations: Sequence[Operation]) -> None:
        from tenuto.schemas.operations import OPERATIONS

        body = {
            "searcher": self.name,
            "cause_id": str(event.id),
            "operations": [operation.model_dump(mode="json") for operation in operations],
        }
        self.recorded[str(event.id)] = _digest(operations)
        try:
            answer = self._patiently(f"/experiments/{self._experiment}/operations", body)
        except Refused as error:
            if error.word == "conflict":  # It is ending, which the next events will say.
                say(f"{self.name}: {error}", file=sys.stderr)
                return
            raise CliError(
                f"{self.name} asked on position {event.position} ({event.type}) for what cannot be: {error} Correct it and run it"
                " again; trials go on meanwhile."
            ) from error
        as_recorded = OPERATIONS.validate_python(answer["operations"])
        if _digest(as_recorded) != self.recorded[str(event.id)] and not self._changed:
            self._differs(event.position, _words(operations), _words(as_recorded))
        if not self._quiet:
            say(f"position {event.position}, {event.type}: {_words(operations)}", flush=True)

    def _patiently(self, path: str, body: dict[str, Any]) -> Any:
        """Posts, and waits while the cluster is unreachable; a request that is sent twice is recorded once."""
        from tenuto.client.waiting import ClusterOutage

        outage = ClusterOutage(notice)
        while True:
            try:
                answer = self._rest.post(path, body)
            except Refused:
                raise
            except ClientError as error:
                time.sleep(outage.pause(error))
            else:
                outage.over()
                return answer

    def _protected(self, event: Event, call: Any) -> Any:
        try:
            return call()
        except Exception as error:
            traceback.print_exc()
            raise CliError(
                f"{self.name} failed on position {event.position}, {event.type} ({type(error).__name__}: {error}). Correct it and"
                " run it again, with --changed if it now decides otherwise on what was before; trials go on meanwhile."
            ) from error

    def _differs(self, position: int, now: str, recorded: str) -> None:
        raise CliError(
            f"On the event at position {position} {self.name} now decides {now}, but {recorded} is on record. It must be a"
            " function of what it is told: no clock, no random numbers but those of self.search.random. If you changed it,"
            " run it with --changed: what is on record stands, and it decides from here on."
        )

    def _ended(self, event: Event) -> bool:
        from tenuto.schemas.events.search import ExperimentCompleted, ExperimentFailed
        from tenuto.schemas.sentences import sentence_of

        data = event.data
        if isinstance(data, ExperimentCompleted):
            say(f"Experiment {self._experiment} completed. {sentence_of(event)}")
            return True
        why = f"failed: {data.error}" if isinstance(data, ExperimentFailed) else "was canceled."
        raise CliError(f"Experiment {self._experiment} {why}", EXIT_NOT_COMPLETED)


def _digest(operations: Sequence[Operation]) -> bytes:
    digest = hashlib.sha256()
    for operation in operations:
        digest.update(operation.to_json() + b"\n")
    return digest.digest()


def _words(operations: Sequence[Operation]) -> str:
    shown = ", ".join(map(_word, operations[:OPERATIONS_SHOWN_MAX]))
    more = len(operations) - OPERATIONS_SHOWN_MAX
    return (f"{shown} and {more} more" if more > 0 else shown) or "nothing"


def _word(operation: Operation) -> str:
    match operation.kind:
        case "create":
            return f"create to {operation.length}"
        case "extend":
            return f"extend {operation.trial} to {operation.length}"
        case "stop":
            return f"stop {operation.trial}"
        case "fail":
            return f"fail ({operation.error})"
        case _:
            return "complete"
