"""Sentences for users about containers that could not start, or used all memory."""

from __future__ import annotations

from tenuto.workers.agent.runtimes import error_sentences
from tenuto.workers.agent.runtimes.docker.images import Image
from tenuto.workers.agent.runtimes.runtime import EnvironmentUnusable


def out_of_memory(limit_bytes: int) -> str:
    """`limit_bytes`: of the container; 0: it had none, and the node itself ran out."""
    return error_sentences.out_of_memory("The container", limit_bytes, "TENUTO_DOCKER_MEMORY_BYTES_PER_SLOT")


def could_not_begin(code: int, said: str) -> str:
    """`code`: exit code of a first process that has not run its trial. `said`: what it printed."""
    last = said.splitlines()[-1:] or ["it said nothing"]
    return f"The image's python3 could not begin (exit code {code}): {last[0][:500]}"


def start_problem(image: Image, said: str) -> EnvironmentUnusable | OSError:
    """The error for a container that the daemon could not start. `said`: the daemon's own words."""
    low = said.lower()
    if "python3" in low and ("not found" in low or "no such file" in low):
        return EnvironmentUnusable(
            f"The image {image.name} has no python3 on its PATH, but a trial needs CPython 3.11 or newer there: use "
            "an image with Python."
        )
    if "exec format error" in low:
        return EnvironmentUnusable(
            f"The image {image.name} is made for another processor than this agent's node has: use an image for that one."
        )
    if low.startswith("network ") and "not found" in low:
        why = "make it (docker network create), or change TENUTO_DOCKER_NETWORK or TENUTO_DOCKER_GANG_NETWORK of the agent"
        return OSError(f"{said} by the Docker daemon; {why}")
    if "rlimit" in low:
        return OSError(
            "the Docker daemon may not set a limit that TENUTO_DOCKER_ULIMITS asks for; lower it, or raise the daemon's own "
            f"({said})"
        )
    if "could not select device driver" in low:
        why = "the Docker daemon gives containers no GPUs; install the NVIDIA Container Toolkit on the agent's node"
        return OSError(f"{why} ({said})")
    return OSError(said)
