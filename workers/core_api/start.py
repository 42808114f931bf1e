"""`tenuto.init()`."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.workers.core_api.run import Run
from tenuto.workers.core_api.session import current, set_current
from tenuto.workers.errors import UserError
from tenuto.workers.record.recorder import record_environment


def init(
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    hyperparameters: Mapping[str, Any] | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Run:
    """The run of the trial that this script trains: use as `with tenuto.init() as run:`.

    In a cluster everything comes from the experiment, and the arguments are ignored. Without one:

    `config`: the experiment's configuration, as a YAML file or as plain data. None: `config.yaml` in the current directory.
    `hyperparameters`: values for those that the configuration gives a range, or other values for its constants; None: none.
    `directory`: directory of the record. If it holds a record, that run goes on from its latest checkpoint. None: a new one under
    `tenuto-runs/`.

    Raises UserError: the configuration is wrong or cannot be read, `init` was called before in this script, or the process is not
    that of the experiment's entrypoint.

        import tenuto

        config = {
            "name": "line",
            "entrypoint": "train.py",
            "hyperparameters": {"rate": 0.1},
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
        }
        with tenuto.init(config) as run:
            for operation in run.operations():
                run.report_validation(operation.steps, {"loss": run.hyperparameters["rate"]})
    """
    session = current()
    if session is None or (session.run is not None and session.local_directory is not None):
        if os.environ.get("TENUTO_AGENT_ADDRESS"):
            raise UserError(
                "tenuto.init() belongs in the script that the experiment's entrypoint names, in its own process; a Trial "
                "class, or a process that the script has started, does not need it."
            )
        from tenuto.workers.core_api.local import open_local

        session = open_local(config, hyperparameters or {}, Path(directory) if directory is not None else None)
        set_current(session)
    elif session.run is not None:
        raise UserError("tenuto.init() was called before in this script; pass on the run that it returned.")
    run = session.run = Run(session)
    for call in session.at_init:
        call()
    record_environment()
    atexit.register(run.close)  # for scripts that do not use `with`
    return run
