"""The frameworks that are installed, and a guess which of them a run will use, from the text of the user's code, so that it
starts from a process that has imported that one. A wrong guess costs time or memory, and changes no result."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from tenuto.kernel import plugins
from tenuto.schemas.config.entrypoint import script_of
from tenuto.workers.harness.framework import Framework
from tenuto.workers.launch.gang import Gang

GROUP = "tenuto.frameworks"
FRAMEWORK_VARIABLE = "TENUTO_WARM_FRAMEWORK"
"""Variable that tells a warm process the name of its framework; it is not set in runs."""
NONE = "none"
"""Value of FRAMEWORK_VARIABLE for a program that is not ours: nothing is imported."""
FILES_MAX = 100
FILE_BYTES_MAX = 256 << 10
"""Most bytes read of a file of a model directory: code is smaller, and the rest is not needed."""
LOST_WORDS = ("Connection closed by peer", "Connection reset by peer", "Connection refused", "Broken pipe", "NCCL error")
"""Words of a RuntimeError of the libraries below all frameworks (Gloo, NCCL) about a rank that is gone."""
_COMMON: tuple[str, ...] = ("tenuto.workers.harness.main", "tenuto.workers.launch.supervisor")


@cache
def _loaded() -> tuple[Mapping[str, Framework], tuple[str, ...]]:
    found: dict[str, Framework] = {}
    problems = []
    for name in plugins.names(GROUP):
        try:
            found[name] = plugins.load(GROUP, name)
        except Exception as error:  # a trial of another framework must not fail for it
            problems.append(f"a framework is left out: {error}")
    return MappingProxyType(found), tuple(problems)


def every() -> Mapping[str, Framework]:
    """All frameworks that can be used, by name, sorted."""
    return _loaded()[0]


def problems() -> tuple[str, ...]:
    """A sentence about each framework that cannot be used."""
    return _loaded()[1]


def imported() -> Iterator[Framework]:
    """Frameworks whose library this process has imported."""
    return (framework for framework in every().values() if framework.library in sys.modules)


def connect(gang: Gang, strategy: str) -> None:
    """Prepares the way by which the user's own code finds the other ranks. Raises UserError."""
    for framework in every().values():
        if strategy in framework.strategies:
            framework.connect(gang)


def lost_others(error: BaseException | None) -> bool:
    """True for an error of the communication between ranks: another rank is gone, and its own end has the cause."""
    names = {name for framework in every().values() for name in framework.lost_errors}
    while error is not None:
        if type(error).__name__ in names:
            return True
        if type(error) is RuntimeError and any(words in str(error) for words in LOST_WORDS):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def preloaded(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Modules that a warm process with this environment imports, as far as they are installed."""
    name = environment.get(FRAMEWORK_VARIABLE) or usual()
    if name == NONE:
        return ()
    always = (module for framework in every().values() for module in framework.always_preloads)
    return (*_COMMON, *always, *(every()[name].preloads(environment) if name in every() else ()))


def variables_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of the variables on which a guess depends."""
    return tuple(environment.get(name, "") for framework in every().values() for name in framework.variables)


def framework_of(entrypoint: str, context_directory: Path, environment: Mapping[str, str]) -> str:
    """Name of a run's framework. `environment`: of the run. The usual one if nothing else is certain, such as for code that has
    to run before the framework is imported."""
    try:
        text = _read(context_directory / _file_of(entrypoint))
        for name, framework in every().items():
            if _imports(text, framework.announced_by) and framework.preloads(environment):
                files = sorted(context_directory.rglob("*.py"))[:FILES_MAX]
                return usual() if any(framework.must_begin(_read(path)) for path in files) else name
    except (OSError, ValueError):  # the run will say what is wrong
        pass
    return usual()


def usual() -> str:
    """Name of the framework that is assumed if the code shows none."""
    return next((name for name, framework in every().items() if framework.usual), NONE)


def _imports(text: bytes, modules: tuple[str, ...]) -> bool:
    names = "|".join(map(re.escape, modules))
    return bool(modules) and re.search(rf"^[ \t]*(?:import|from)[ \t]+(?:{names})\b".encode(), text, re.MULTILINE) is not None


def _file_of(entrypoint: str) -> str:
    """File of the module or script that the entrypoint names."""
    script = script_of(entrypoint)
    if script is not None and script.file is not None:
        return script.file
    module = script.module if script is not None and script.module is not None else entrypoint.partition(":")[0]
    return f"{module.replace('.', '/')}.py"


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX)
