"""State of the git repository that contains a model directory."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tenuto.schemas.record import GIT_DIFF_CHARACTERS_MAX, GitState

GIT_SECONDS_MAX = 10.0
"""Longest wait for a slow repository; then its state is left out."""
DIFF_BYTES_READ = 4 * GIT_DIFF_CHARACTERS_MAX
UNTRACKED_MAX = 100
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


def git_state(directory: Path) -> GitState | None:
    """State of the repository; None if the directory is not in one with a commit, or git is not installed."""
    commit = _git(directory, "rev-parse", "HEAD")
    if not commit:
        return None
    diff = _git(directory, "diff", "HEAD", "--no-ext-diff", "--no-color", "--relative", "--", ".") or ""
    untracked = (_git(directory, "ls-files", "--others", "--exclude-standard", "-z") or "").split("\0")
    return GitState(
        commit=commit.strip(),
        branch=(_git(directory, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        remote=CREDENTIALS.sub("", (_git(directory, "config", "--get", "remote.origin.url") or "").strip()),
        diff=diff[:GIT_DIFF_CHARACTERS_MAX],
        diff_truncated=len(diff) > GIT_DIFF_CHARACTERS_MAX,
        untracked=tuple(name for name in untracked if name)[:UNTRACKED_MAX],
    )


def _git(directory: Path, *arguments: str) -> str | None:
    """Output of git, cut at DIFF_BYTES_READ; None if it fails. Takes no locks: the user may be working there."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-C", str(directory), *arguments]
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=environment
        )
    except OSError:
        return None
    with process:
        assert process.stdout is not None
        try:
            output = process.stdout.read(DIFF_BYTES_READ)
            if len(output) == DIFF_BYTES_READ:
                process.kill()
            code = process.wait(GIT_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    if code != 0 and len(output) < DIFF_BYTES_READ:
        return None
    return output.decode(errors="replace")
