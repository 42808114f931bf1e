"""Sentences for users about containers that could not start, or used all memory."""

from __future__ import annotations

from tenuto.workers.agent.runtimes.docker.images import Image
from tenuto.workers.agent.runtimes.runtime import EnvironmentUnusable

_MIB = 1 << 20


def out_of_memory(limit_bytes: int) -> str:
    """`limit_bytes`: of the container; 0: it had none, and the node itself ran out."""
    limit = f"its limit of {limit_bytes // _MIB} MiB" if limit_bytes else "all that the node had left"
    return (
        f"The container ran out of memory: it used {limit}. Use a smaller batch or model, more slots, or an agent that gives "
        "more memory for each slot (TENUTO_DOCKER_MEMORY_BYTES_PER_SLOT)."
    )


def start_problem(image: Image, said: str) -> EnvironmentUnusable | OSError:
    """The error for a container that the daemon could not start. `said`: the daemon's own words."""
    words = said.lower()
    if "python3" in words and ("not found" in words or "no such file" in words):
        return EnvironmentUnusable(
            f"The image {image.name} has no python3 on its PATH, but a trial needs CPython 3.11 or newer there: use "
            "an image with Python."
        )
    if "exec format error" in words:
        return EnvironmentUnusable(
            f"The image {image.name} is made for another processor than this agent's node has: use an image for that one."
        )
    if "could not select device driver" in words:
        why = "the Docker daemon gives containers no GPUs; install the NVIDIA Container Toolkit on the agent's node"
        return OSError(f"{why} ({said})")
    return OSError(said)
