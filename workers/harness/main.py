"""A worker process from start to exit code.

It tells its agent how it ends, or as a rank of several its supervisor; the sentence about a failure is in the error file. Its
exit code says the same to people, and nothing to us, as the user's code may end the process with any: 0 the trial is over, 80
preempted, 81 paused, 82 the model code refused the hyperparameters, 86 failed in a way that would repeat, 1 failed, 83 a rank
that only lost the others. Failures that are not the user's end by SIGKILL, which the agent counts as lost: the agent is gone, or
ordered an immediate stop."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tenuto.kernel.clock import SystemClock
from tenuto.schemas.assignments import Action, Assignment
from tenuto.schemas.events.run import EXIT_CODE_FOLLOWED, EXIT_CODE_INVALID_HYPERPARAMETERS, EXIT_CODE_WILL_REPEAT
from tenuto.schemas.reports import StragglerReport
from tenuto.schemas.text import storable
from tenuto.workers.connection.agent_client import AgentClient, Welcome
from tenuto.workers.connection.directives import AgentGone, Directive, DirectiveBox
from tenuto.workers.endings import Ending
from tenuto.workers.errors import InvalidHyperparameters, describe, will_repeat
from tenuto.workers.harness import frameworks, notifier
from tenuto.workers.harness.class_training import train_class
from tenuto.workers.harness.entrypoint import enter_context, load_trial_class
from tenuto.workers.harness.environment import WorkerEnvironment
from tenuto.workers.harness.framework import Worker
from tenuto.workers.harness.kept_worker import KeptWorker
from tenuto.workers.harness.notifier import Notifier
from tenuto.workers.harness.quick_end import QuickEnd
from tenuto.workers.harness.reporter import NoReports, Reporter, Reports
from tenuto.workers.harness.training import say
from tenuto.workers.launch.gang import Gang
from tenuto.workers.launch.messages import Message
from tenuto.workers.record import recorder

LEFT: dict[Action, Ending] = {"stop": "finished", "preempt": "preempted", "pause": "paused"}
EXIT_FAILED = 1
EXIT_CODES: dict[Ending, int] = {
    "finished": 0,
    "preempted": 80,
    "paused": 81,
    "invalid_hyperparameters": EXIT_CODE_INVALID_HYPERPARAMETERS,
    "followed": EXIT_CODE_FOLLOWED,
    "will_repeat": EXIT_CODE_WILL_REPEAT,
}
"""Exit codes by ending; other endings have EXIT_FAILED."""
KEPT_AFTER = frozenset({EXIT_CODES["finished"], EXIT_CODES["paused"]})
"""Exit codes after which a worker may stay for another run. After a failure nothing is known of its state; after a preemption its
slots are wanted by others."""
EXIT_SECONDS_MAX = 30.0
"""Time for threads and exit handlers of the user's code; the slots are wanted by others."""


def main(wait_go: Callable[[], None] | None = None, kept: KeptWorker | None = None) -> NoReturn:
    """Runs the worker. `wait_go`: returns when the user's code may be loaded; until then the worker may be abandoned. `kept`: the
    way by which it gets another run after one that ended in order; None: it has one run."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        environment = WorkerEnvironment.read()
    except KeyError as error:
        sys.exit(f"tenuto: {error.args[0]} is not set; workers are started by an agent (tenuto up, tenuto exp create).")
    ending = QuickEnd(EXIT_FAILED)  # the slots are wanted by others
    if kept is None:
        ending.code = run(environment, wait_go)
    else:
        kept.note()
        ending.code = kept.run(lambda: run(environment, wait_go))
        while ending.code in KEPT_AFTER and kept.next(ending.code, say):
            environment, ending.code = WorkerEnvironment.read(), EXIT_FAILED
            ending.code = kept.run(lambda environment=environment: run(environment, wait_go))  # type: ignore[misc]
    # Only after the training: exit handlers and threads of the user's code have a limit, training has none.
    threading.Thread(target=_end_late, args=[ending], daemon=True).start()
    sys.exit(ending.code)


def _end_late(ending: QuickEnd) -> None:
    threading.Event().wait(EXIT_SECONDS_MAX)
    ending.end()


def run(environment: WorkerEnvironment, wait_go: Callable[[], None] | None = None) -> int:
    """Returns the exit code; does not return if the process must not look as if it had ended by itself."""
    clock = SystemClock()
    gang = Gang.join()
    client = AgentClient(environment.agent_address, environment.token, environment.allocation_id, environment.rank, clock)
    context_directory = Path.cwd()
    try:
        # The worker greets the agent before its go: no code of the user's is loaded for that.
        welcome = client.hello()
        context_directory = welcome.context_directory
        if wait_go is not None:
            wait_go()
        action = _train(client, welcome, clock, gang)
    except AgentGone as error:
        say(f"{error} This worker ends; the trial goes on from its last checkpoint.")
        _die()
    except BaseException as error:  # whatever the user's code raises, SystemExit included, is the user's to see
        ending = _failure(error, gang, environment, context_directory)
    else:
        if action == "kill":
            _die()
        if gang is not None:
            for framework in frameworks.every().values():
                framework.leave(gang)
        ending = LEFT[action]
    _tell(ending, client, gang)
    client.close()
    return EXIT_CODES.get(ending, EXIT_FAILED)


def _tell(ending: Ending, client: AgentClient, gang: Gang | None) -> None:
    """Tells the ending where it counts. A supervisor tells its agent the end of all its ranks."""
    if gang is not None:
        gang.tell_ending(ending)
        return
    try:
        client.end(ending)
    except AgentGone as error:
        say(f"{error} This worker ends; the trial goes on from its last checkpoint.")
        _die()


def _failure(error: BaseException, gang: Gang | None, environment: WorkerEnvironment, context_directory: Path) -> Ending:
    if gang is not None and frameworks.lost_others(error):
        say(f"rank {gang.rank} lost the other ranks: {describe(error, context_directory)}")
        return "followed"
    _write_error(environment.error_file, describe(error, context_directory))
    if isinstance(error, InvalidHyperparameters):
        return "invalid_hyperparameters"
    if will_repeat(error):
        say("this would happen again at every start, so the trial is not restarted")
        return "will_repeat"
    return "failed"


def _train(client: AgentClient, welcome: Welcome, clock: SystemClock, gang: Gang | None) -> Action:
    """Trains a Trial class. In a gang, only rank 0 is connected to the agent and reports; the others do what the ranks agree
    on."""
    assignment, leads = welcome.assignment, gang is None or gang.leads
    first = Directive(assignment.action, assignment.target_length)
    box = DirectiveBox(first) if gang is None else gang.open_box(first)
    if leads:
        threading.Thread(target=client.watch, args=(box,), name="tenuto-directives", daemon=True).start()
    _leave_on_sigterm(box)
    reporter: Reports = Reporter(client, welcome.last_sequence) if leads else NoReports()
    if box.current.leave:
        return box.current.action  # nothing was trained here, so there is nothing to save
    tell = say if leads else _unsaid
    for sentence in frameworks.problems():
        tell(sentence)
    for framework in frameworks.every().values():
        framework.enter(assignment, gang)
    enter_context(welcome.context_directory)  # after the frameworks were found: what a user's directory declares is none
    if gang is not None:
        gang.on_straggler = _tells_stragglers(assignment, gang, reporter)
    recorder.install(recorder.Recorder(assignment, lambda body: reporter.report("tracker", body), tell))
    notifier.install(Notifier(assignment, lambda body: reporter.report("tracker", body), tell, clock.monotonic))
    for framework in frameworks.every().values():
        if framework.runs(assignment.config.entrypoint):
            return framework.run(Worker(welcome, box, reporter, clock, gang))
    trial_class = load_trial_class(assignment.config.entrypoint, welcome.context_directory)
    return train_class(
        trial_class, assignment, box, reporter, welcome.checkpoint_directory, clock, gang=gang, stores=welcome.stores
    )


def _tells_stragglers(assignment: Assignment, gang: Gang, reporter: Reports) -> Callable[[Message], None]:
    def tell(message: Message) -> None:
        report = StragglerReport(
            trial_id=assignment.trial_id,
            allocation_id=assignment.allocation_id,
            rank=message["rank"],
            slots=gang.world_size,
            agent_id=message["agent_id"],
            own_seconds=round(message["own_seconds"], 6),
            usual_seconds=round(message["usual_seconds"], 6),
        )
        with contextlib.suppress(AgentGone):  # the training thread hears of it, too
            reporter.report("tracker", report)

    return tell


def _unsaid(text: str) -> None:
    """Drops a line, because rank 0 logs it."""


def _leave_on_sigterm(box: DirectiveBox) -> None:
    """Saves and leaves at SIGTERM, as for a preemption: a node that shuts down sends it."""
    process_id = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process_id:  # a forked helper of the user's: it has nothing to save
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        box.leave("preempt")

    signal.signal(signal.SIGTERM, handle)


def _write_error(error_file: str, text: str) -> None:
    text = storable(text)
    print(f"tenuto: the trial failed: {text}", file=sys.stderr, flush=True)
    if error_file:
        temporary = f"{error_file}.partial"
        try:
            Path(temporary).write_text(text)
            os.replace(temporary, error_file)
        except OSError as error:
            say(f"the error could not be written to {error_file}: {error}")


def _die() -> NoReturn:
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")
