"""Description of warm containers: what runs must have in common to be forked in the same one, and what each is told. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from tenuto.kernel.account import WORKER_UMASK
from tenuto.workers.agent.local_ranks import is_gang
from tenuto.workers.agent.runtimes.docker.description import ContainerFacts, described, environment_of, read_only, temporary
from tenuto.workers.agent.runtimes.docker.engine import LABEL_AGENT, LABEL_PACKAGES, LABEL_WARM
from tenuto.workers.agent.runtimes.docker.images import Image
from tenuto.workers.agent.runtimes.docker.mounts import Bind
from tenuto.workers.agent.runtimes.docker.warm_container import Recipe
from tenuto.workers.agent.runtimes.docker.warm_files import PLACE, apart
from tenuto.workers.agent.runtimes.files import RunFiles
from tenuto.workers.agent.runtimes.forks import FIXED, PER_RUN
from tenuto.workers.agent.runtimes.runtime import Work
from tenuto.workers.harness.fork_orders import MARK_BYTES, MARK_VARIABLE, ForkOrder
from tenuto.workers.harness.frameworks import FRAMEWORK_VARIABLE
from tenuto.workers.launch.memory_protection import PRIVATE_VARIABLE

ZYGOTE_COMMAND = ("python3", "-P", "-m", "tenuto.workers.harness.zygote")
MEMORY_BYTES_MIN = 2 << 30
"""Least limit of memory of a warm container: below it, an imported framework would be a large part of what a run may use, which
perhaps does not need it."""
SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")
"""Directories of a container in which every process may write, and that runs which follow each other would share."""
ADDED = {MARK_VARIABLE: "-" * MARK_BYTES, PRIVATE_VARIABLE: "1", **FIXED}
"""Variables of the process that workers are forked from. It is private: no process of a run can look into it or change it."""


def recipe_of(
    facts: ContainerFacts, work: Work, image: Image, own: Sequence[Bind], fixed: Sequence[Bind], files: RunFiles, framework: str
) -> Recipe | None:
    """The warm container that this run could be forked in; None: it has to start cold. `own`: mounts of the run; `fixed`: those
    that it has in common with others."""
    memory = facts.limits.memory_bytes(len(facts.held(work.assignment)))
    if work.secrets or len(work.assignment.slots) > 1 or 0 < memory < MEMORY_BYTES_MIN:
        return None
    if read_only(facts, work):  # its /tmp is a directory of the run, in which those of others could not be mounted
        return None
    places = tuple(sorted({_place(bind, files) for bind in own if bind.target != temporary(work.allocation_id)}))
    if not apart((*places, PLACE), [bind.target for bind in fixed]):
        return None
    description = described(facts, work, image, fixed)
    description |= {
        "Entrypoint": [*description["Entrypoint"], "warm"],
        "OpenStdin": False,
        "StdinOnce": False,
        "Labels": {LABEL_AGENT: str(facts.node.directory), LABEL_PACKAGES: facts.packages.name, LABEL_WARM: ""},
    }
    environment = environment_of(facts, work, image, files, PLACE)
    kept = {name: value for name, value in environment.items() if name not in PER_RUN or name == "TMPDIR"}
    line = {
        "environment": kept | ADDED | {FRAMEWORK_VARIABLE: framework},
        "command": ZYGOTE_COMMAND,
        "umask": WORKER_UMASK if facts.account else 0o022,
        "image": image.name,
    }
    return Recipe(description, places, json.dumps(line, sort_keys=True).encode() + b"\n", image.name)


def _place(bind: Bind, files: RunFiles) -> str:
    """Directory in which the mounts of other runs like this one are, too."""
    path = PurePosixPath(bind.target)
    if path.name.partition("-")[0] == path.parent.name:  # checkpoints: EXPERIMENT/EXPERIMENT-TRIAL
        return str(path.parents[1])
    return str(path.parent)


def own_binds(work: Work, own: Sequence[Bind]) -> list[Bind]:
    """The run's mounts as they are in a warm container."""
    return [replace(bind, target=PLACE) if bind.target == temporary(work.allocation_id) else bind for bind in own]


def forked_job(facts: ContainerFacts, work: Work, image: Image, files: RunFiles) -> ForkOrder:
    environment = environment_of(facts, work, image, files, PLACE)
    made = ForkOrder(
        environment={name: value for name, value in environment.items() if name in PER_RUN},
        unset=[name for name in ADDED if name not in environment],
        cwd=str(work.context),
        mark="",
        exit_file=str(files.exit),
        stdout=str(files.stdout),
        stderr=str(files.stderr),
        gang=is_gang(work.assignment),
        shared=list(SHARED),
    )
    if not facts.is_harness:
        made["command"] = list(facts.command)
    return made
