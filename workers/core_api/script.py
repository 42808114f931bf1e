"""Runs an experiment's script in the worker process, and judges its end."""

from __future__ import annotations

import os
import runpy
import sys
import threading
from pathlib import Path

from tenuto.schemas.assignments import Action
from tenuto.schemas.config.entrypoint import Script
from tenuto.workers.core_api.session import Session, say, set_current
from tenuto.workers.errors import UserError, WillRepeat
from tenuto.workers.harness.early_end import ended_report

INIT_SECONDS_USUAL = 60.0
"""Time after which a script that has not called `tenuto.init()` is reminded that nothing of it is recorded: libraries and data
are usually loaded by then. Each further reminder comes after twice as long."""
REMINDER_SECONDS_MAX = 3600.0
FILES_MAX = 1_000
FILE_BYTES_MAX = 1 << 20
"""Limit of a search for the word `tenuto` in a model directory: number of Python files, and bytes of each."""


def run_script(script: Script, context_directory: Path, session: Session) -> Action:
    """Runs the script as `__main__` of this very process, so that processes that it forks or spawns find what they expect.
    Returns the action by which the agent wanted this worker to leave. Raises AgentGone, UserError, or the script's error."""
    set_current(session)
    begun = threading.Event()
    session.at_init.append(begun.set)
    if session.gang is None or session.gang.leads:
        threading.Thread(target=_remind, args=(script, context_directory, begun), name="tenuto-init", daemon=True).start()
    try:
        _execute(script, context_directory)
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    finally:
        begun.set()
    return _verdict(script, session)


def _remind(script: Script, context_directory: Path, begun: threading.Event) -> None:
    """Reminds the user, while the script trains without `tenuto.init()`, that nothing is recorded: at once if no file of the
    model directory can call it."""
    without = f"before {script.name} calls tenuto.init(), nothing of it is recorded, saved or compared, and no pause reaches it"
    what_to_do = "wrap its training in `with tenuto.init() as run:`"
    if not mentions_tenuto(context_directory):
        say(f"warning: no Python file of the model directory mentions tenuto, and {without}: {what_to_do}.")
    pause = INIT_SECONDS_USUAL
    waited = 0.0
    while not begun.wait(pause):
        waited += pause
        say(f"warning: {script.name} runs for {waited:.0f} s without having called tenuto.init(): {without}; {what_to_do}.")
        pause = min(2 * pause, REMINDER_SECONDS_MAX)


def mentions_tenuto(context_directory: Path) -> bool:
    """True if one of the Python files searched has the word, or `determined`, which Tenuto stands in for; otherwise only an
    installed package could call `tenuto.init()`."""
    looked_at = 0
    for directory, folders, names in os.walk(context_directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.endswith(".py"):
                continue
            looked_at += 1
            if looked_at > FILES_MAX:
                return True
            if _has_word(Path(directory) / name):
                return True
    return False


def _has_word(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX)
    except OSError:
        return True  # unknown: assumed to have the word
    return b"tenuto" in text or b"determined" in text


def _execute(script: Script, context_directory: Path) -> None:
    if script.module is not None:
        sys.argv = [script.module, *script.arguments]  # runpy puts the module's file in the place of its name
        runpy.run_module(script.module, run_name="__main__", alter_sys=True)
        return
    assert script.file is not None
    path = context_directory / script.file
    if not path.is_file():
        raise WillRepeat(f"entrypoint: there is no file {script.file} in the model directory.")
    sys.argv = [script.file, *script.arguments]
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as `python path/to/train.py` does
    runpy.run_path(str(path), run_name="__main__")


def _verdict(script: Script, session: Session) -> Action:
    """The action by which a script ended. It may end because it was told to leave, or after the validation that the search
    waits for."""
    run, box = session.run, session.box
    if session.trained is not None:
        return session.trained
    if session.gang is not None:
        session.gang.progress.idle()
        if not session.gang.leads:  # rank 0 reports, and waits for what the search says
            if run is not None:
                run.close()
            session.gang.send({"op": "done"})  # what the others agree on from now on does not wait for it
            return "stop"
    if run is None:
        return _over_alone(script, session)
    directive = box.current
    if not directive.leave and run.validated_at is None:
        target = run.target_steps()
        raise UserError(
            f"{script.name} ended at step {run.steps} of {target}, without a validation: the search waits for {run.metric!r}. "
            "Train until operation.steps, as run.operations() says, and call "
            f"run.report_validation({target}, {{{run.metric!r}: ...}}) there, or before you end the training early."
        )
    run.close()
    if not directive.leave:
        directive = box.wait_change(directive)
        while run.ended is not None and not directive.leave:  # what it asks for now was decided before it knew
            directive = box.wait_change(directive)
        if not directive.leave:
            say(f"the search asks for more: {script.name} starts again from its last checkpoint")
            return "preempt"
    return directive.action


def _over_alone(script: Script, session: Session) -> Action:
    """The action by which a script ends that never called the API. Where no trials are compared it has done what it was to do,
    as it ended without an error. Raises WillRepeat where they are."""
    assignment = session.assignment
    searcher = assignment.config.searcher
    if not searcher.ONE_TRIAL:
        raise WillRepeat(
            f"{script.name} ended without calling tenuto.init(), so nothing of it could be recorded, and {searcher.name} has"
            " nothing to compare; wrap its training in `with tenuto.init() as run:`, or use searcher.name: single."
        )
    said = f"{script.name} ended without calling tenuto.init()"
    say(f"{said}: the trial is complete, and no metric and no checkpoint is recorded")
    session.reports.report("tracker", ended_report(assignment, 0, 0, said))
    session.reports.flush()
    directive = session.box.current
    while not directive.leave:
        directive = session.box.wait_change(directive)
    return directive.action
