"""Pages of documents as a reader follows them: commands, files and pools, as they stand there."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tenuto.schemas.provisioning import Provisioning

DOCS = Path(__file__).parents[2] / "docs"
SECONDS_MAX = 120.0
NAMESPACES = ("unshare", "--net", "--mount")
"""Beginning of a command that has a network and mounts of its own, for as long as it runs."""


def no_namespaces() -> str:
    """Why there are none here; empty if there are."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "there are no commands unshare and ip to make namespaces with"
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, check=False)
    return f"namespaces are not allowed here: {tried.stderr.strip()}" if tried.returncode else ""


def blocks(page: str, language: str) -> list[str]:
    """Blocks of that language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def block(page: str, language: str, with_text: str) -> str:
    [found] = [text for text in blocks(page, language) if with_text in text]
    return found


def pool_of(page: str, **others: str) -> Provisioning:
    """Pool that the page's first command makes. `others`: settings with another value than on the page, which has examples of
    what is each reader's own; an empty value leaves one out."""
    [words, *_] = [
        shlex.split(line)
        for text in blocks(page, "sh")
        for line in text.replace("\\\n", " ").splitlines()
        if line.startswith("tenuto pool create")
    ]
    options = dict(itertools.pairwise(words))
    given = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--set")
    settings = {name: value for name, value in {**given, **others}.items() if value}
    types = [{"slots": int(options["--slots"]), "device": options.get("--device", "")}]
    pool = {
        "provisioner": options["--provisioner"],
        "settings": settings,
        "nodes_max": int(options["--max"]),
        "node_types": types,
    }
    return Provisioning.model_validate(pool)


def run(script: str, directory: Path, programs: str, *before: str, **environment: str) -> str:
    """What bash prints of these lines, in this directory, which is the reader's home, too. `before`: command that runs bash."""
    command = [*before, "/bin/bash", "-euo", "pipefail", "-c", script]
    kept = {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}  # by which what is left of tests is found
    given: Mapping[str, str] = {**kept, "HOME": str(directory), "PATH": programs, **environment}
    done = subprocess.run(
        command,
        cwd=directory,
        env=given,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout
