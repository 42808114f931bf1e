"""Runs an experiment's script in the worker process, and judges how it ended."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tenuto.schemas.assignments import Action
from tenuto.schemas.config.entrypoint import Script
from tenuto.workers.core_api.session import Session, say, set_current
from tenuto.workers.harness.errors import UserError


def run_script(script: Script, context_directory: Path, session: Session) -> Action:
    """The script is `__main__` of this very process, so that what it forks or spawns finds what it expects. Returns the action
    by which the agent wanted this worker to leave. Raises AgentGone, UserError, or what the script raises."""
    set_current(session)
    try:
        _execute(script, context_directory)
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    return _verdict(script, session)


def _execute(script: Script, context_directory: Path) -> None:
    if script.module is not None:
        sys.argv = [script.module, *script.arguments]  # runpy puts the module's file in the place of its name
        runpy.run_module(script.module, run_name="__main__", alter_sys=True)
        return
    assert script.file is not None
    path = context_directory / script.file
    if not path.is_file():
        raise UserError(f"entrypoint: there is no file {script.file} in the model directory.")
    sys.argv = [script.file, *script.arguments]
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as `python path/to/train.py` does
    runpy.run_path(str(path), run_name="__main__")


def _verdict(script: Script, session: Session) -> Action:
    """A script may end because it was told to leave, or after the validation that the search waits for."""
    run, box = session.run, session.box
    if session.gang is not None:
        session.gang.progress.idle()
        if not session.gang.leads:  # rank 0 reports, and waits for what the search says
            if run is not None:
                run.close()
            session.gang.send({"op": "done"})  # what the others agree on from now on does not wait for it
            return "stop"
    if run is None:
        raise UserError(
            f"{script.name} ended without calling tenuto.init(), so nothing of it could be recorded; wrap its training in "
            "`with tenuto.init() as run:`."
        )
    directive = box.current
    if not directive.leave:
        target = run.target_steps()
        if run.validated_at is None or run.validated_at < target:
            validated = "without a validation" if run.validated_at is None else f"last validated at step {run.validated_at}"
            raise UserError(
                f"{script.name} ended at step {run.steps} of {target}, {validated}: the search waits for {run.metric!r}. "
                "Train until operation.steps, as run.operations() says, and call "
                f"run.report_validation({target}, {{{run.metric!r}: ...}}) there."
            )
    run.close()
    if not directive.leave:
        directive = box.wait_change(directive)
        if not directive.leave:
            say(f"the search asks for more: {script.name} starts again from its last checkpoint")
            return "stop"
    return directive.action
