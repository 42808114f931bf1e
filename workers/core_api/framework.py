"""Scripts, whatever they train with: entrypoints that are no class."""

from __future__ import annotations

import contextlib

from tenuto.schemas.assignments import Action
from tenuto.schemas.config.entrypoint import script_of
from tenuto.workers.connection.directives import AgentGone
from tenuto.workers.harness import frameworks
from tenuto.workers.harness.framework import Framework, Worker


class Scripts(Framework):
    always_preloads = ("tenuto.workers.core_api.script",)

    def runs(self, entrypoint: str) -> bool:
        return script_of(entrypoint) is not None

    def run(self, worker: Worker) -> Action:
        from tenuto.workers.core_api.script import run_script
        from tenuto.workers.core_api.session import Session
        from tenuto.workers.harness.script_waits import ScriptWaits
        from tenuto.workers.record import recorder

        welcome, gang = worker.welcome, worker.gang
        config = welcome.assignment.config
        script = script_of(config.entrypoint)
        assert script is not None
        session = Session(
            welcome.assignment,
            worker.box,
            worker.reports,
            welcome.checkpoint_directory,
            worker.clock,
            at_begin=recorder.record_environment,
            gang=gang,
            stores=welcome.stores,
        )
        if gang is not None:
            gang.progress.idle()
            frameworks.connect(gang, config.distributed.strategy)
            session.waits = ScriptWaits(gang)
            for framework in frameworks.every().values():
                framework.watch_waits(session.waits)
        try:
            return run_script(script, welcome.context_directory, session)
        except AgentGone:
            raise
        except BaseException:
            if session.run is not None:
                with contextlib.suppress(Exception):  # the error that is under way says more
                    session.run._close()
            worker.reports.flush()  # what was reached before the error is worth recording
            raise
        finally:
            worker.reports.close()


FRAMEWORK = Scripts()
