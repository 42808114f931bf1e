"""Entrypoints: Trial classes, scripts, and scripts behind Determined's launchers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from tenuto.cli.from_determined.notes import Notes
from tenuto.schemas.config.determined_fields import LAUNCHER
from tenuto.schemas.config.entrypoint import INTERPRETERS, script_of

HARNESS = "determined.exec.harness"
STRATEGIES = {"horovod": "horovod", "tensorflow": "multi_worker_mirrored"}
"""Strategy of scripts by launcher; the others find what torchrun sets."""
FLAGS_WITHOUT_EFFECT = ("-u", "-B", "-E", "-s", "-O", "-OO")
"""Options of Python that change nothing of a training."""
OTHER_STARTERS = {
    "torchrun": "Tenuto starts one process for each slot: write the script that it starts",
    "deepspeed": "Tenuto has no launcher for DeepSpeed",
    "accelerate": "Tenuto starts one process for each slot: write the script that it starts",
    "bash": "a shell script cannot be run: write the Python script that it starts",
    "sh": "a shell script cannot be run: write the Python script that it starts",
}


@dataclass(frozen=True)
class Entrypoint:
    words: str | None
    """The entrypoint in Tenuto's form; None if it is refused."""
    is_script: bool
    strategy: str = ""
    """Value of distributed.strategy; empty for the default."""


def convert_entrypoint(value: Any, notes: Notes) -> Entrypoint:
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        words = list(value)
    elif isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as error:
            notes.refused("entrypoint", f"cannot be split into words ({error})", value)
            return Entrypoint(None, True)
    else:
        notes.refused("entrypoint", "is required: a Trial class, such as `model_def:MyTrial`, or a Python script", value)
        return Entrypoint(None, False)
    launcher = ""
    plain = _plain(words)
    if len(plain) > 1 and plain[0] == "-m" and plain[1].startswith(f"{LAUNCHER}."):
        launcher = plain[1].removeprefix(f"{LAUNCHER}.")
        if launcher == "deepspeed":
            notes.refused("entrypoint", OTHER_STARTERS["deepspeed"] + ", and no trial of DeepSpeed's kind", value)
            return Entrypoint(None, True)
        plain = _behind(plain[2:])
    elif plain[:2] == ["-m", HARNESS]:
        plain = plain[2:]
    if not plain:
        notes.refused("entrypoint", "names neither a Trial class nor a Python script", value)
        return Entrypoint(None, True)
    return _started(value, words, plain, launcher, notes)


def _started(value: Any, words: list[str], plain: list[str], launcher: str, notes: Notes) -> Entrypoint:
    if plain[0] in OTHER_STARTERS:
        notes.refused("entrypoint", OTHER_STARTERS[plain[0]], value)
        return Entrypoint(None, True)
    text = shlex.join(["python3", *plain] if plain[0] == "-m" else plain)
    try:
        script = script_of(text)
    except ValueError as error:
        notes.refused("entrypoint", f"must be a Trial class or a Python script, because a worker is one ({error})", value)
        return Entrypoint(None, True)
    if script is None and len(plain) > 1:
        notes.refused("entrypoint", "a Trial class takes no arguments here: put them under hyperparameters", value)
    if launcher:
        notes.changed("entrypoint", f"Tenuto starts a process for each slot, so {LAUNCHER}.{launcher} is not needed")
    strategy = STRATEGIES.get(launcher, "")
    if script is None and launcher != "horovod":
        strategy = ""
    before = words[: len(words) - len(plain)]
    if any("=" in word for word in before[:1]):
        notes.left_out("entrypoint", f"write {before[0]} under environment.variables", None)
    return Entrypoint(text, script is not None, strategy)


def _plain(words: list[str]) -> list[str]:
    """The words without assignments, the interpreter and its options that change nothing."""
    while words and "=" in words[0] and words[0].partition("=")[0].isidentifier():
        words = words[1:]
    if words and words[0] in INTERPRETERS:
        words = words[1:]
        while words and words[0] in FLAGS_WITHOUT_EFFECT:
            words = words[1:]
    return words


def _behind(words: list[str]) -> list[str]:
    """Program that a launcher starts: the words behind the launcher's own options."""
    if "--trial" in words:
        return words[words.index("--trial") + 1 :]
    if "--" in words:
        words = words[words.index("--") + 1 :]
    start = next(
        (at for at, word in enumerate(words) if word in INTERPRETERS or word.endswith(".py") or _is_class(word)), len(words)
    )
    plain = _plain(words[start:])
    return plain[2:] if plain[:2] == ["-m", HARNESS] else plain


def _is_class(word: str) -> bool:
    module, colon, name = word.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))
