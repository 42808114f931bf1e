"""The entrypoint of an experiment: a Trial class (`module:Class`) or a script (`train.py --flag`, `python -m package.train`)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from sys import builtin_module_names, stdlib_module_names

from tenuto.schemas.config.determined_fields import LAUNCHER

EXPECTED = "`module:Class`, such as `model_def:MyTrial`, or a script, such as `train.py --fast` or `python -m package.train`"
INTERPRETERS = ("python", "python3")


@dataclass(frozen=True)
class Script:
    """A script with its arguments. Exactly one of `file` and `module` is set."""

    file: str | None
    """Path relative to the model directory, with `/` between its parts."""
    module: str | None
    """Name of a module, as for `python -m`."""
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.file or f"python -m {self.module}"


def script_of(entrypoint: str) -> Script | None:
    """Script of the entrypoint; None if it is a Trial class. Raises ValueError if it is neither."""
    if _is_class(entrypoint):
        return None
    try:
        words = shlex.split(entrypoint)
    except ValueError as error:  # a quote that is not closed
        raise ValueError(f"cannot be split into words ({error}); it must be {EXPECTED}") from None
    if words and words[0] in INTERPRETERS:
        words = words[1:]
        if words[:1] == ["-m"] and len(words) > 1 and _is_module(words[1]):
            return Script(None, words[1], tuple(words[2:]))
    if words and words[0].endswith(".py") and not words[0].startswith("-"):
        path = PurePosixPath(words[0])
        if path.is_absolute() or ".." in path.parts:
            raise ValueError("must name a script inside the model directory, such as `train.py`")
        return Script(path.as_posix(), None, tuple(words[1:]))
    raise ValueError(f"must be {EXPECTED}")


def standard_module(entrypoint: str) -> str:
    """Name of the module of Python itself that the entrypoint takes its class from; empty if it takes none from there. A file of
    that name in the model directory counts instead, unless Python has the module built in (`sys`)."""
    module = entrypoint.partition(":")[0].partition(".")[0] if _is_class(entrypoint) else ""
    return module if module in stdlib_module_names else ""


def no_trial_in(module: str) -> str:
    """Sentence about an entrypoint in a module of Python itself."""
    file = "" if module in builtin_module_names else f", and the model directory has no {module}.py"
    return f"{module} is a module of Python itself, which has no Trial class{file}; name yours, such as `model_def:MyTrial`"


def check_launcher(entrypoint: str | None) -> list[tuple[str, str]]:
    """Problems of an entrypoint that starts its ranks by itself, as (path, sentence); empty if there are none."""
    try:
        script = script_of(entrypoint or "")
    except ValueError:
        return []  # which says so itself
    if script is None or script.module is None or not script.module.startswith(f"{LAUNCHER}."):
        return []
    if script.module.endswith("deepspeed"):
        return [
            (
                "entrypoint",
                "there is no launcher for DeepSpeed; distributed.strategy: fsdp divides a PyTorch trial's model among slots",
            )
        ]
    words = script.arguments
    start = next((at for at, word in enumerate(words) if word.endswith(".py") or _is_class(word)), None)
    if start is None:
        rest = "the script itself"
    else:
        rest = f"`{words[start]}`" + (" and what follows it" if len(words) > start + 1 else "")
    horovod = ", and distributed.strategy: horovod" if script.module.endswith("horovod") else ""
    return [("entrypoint", f"starts ranks with {script.module}, but Tenuto starts one for each slot; write {rest}{horovod}")]


def _is_class(entrypoint: str) -> bool:
    module, colon, attribute = entrypoint.partition(":")
    return bool(colon) and _is_module(module) and _is_module(attribute)


def _is_module(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))
