"""Text of a failed trial for its user: the user's own file and line first, then the error, then its traceback."""

from __future__ import annotations

import inspect
import math
import os
import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from pickle import PickleError
from types import TracebackType
from typing import Any

from tenuto.workers.endings import ERROR_CHARACTERS_MAX

HEAD_CHARACTERS_MAX = 1_000
"""Most characters of a message in the first line of an error: the place and the traceback must have room beside it."""
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_GRAPH_ERRORS = ("in user code:", "Graph execution error:")
"""Marks of TensorFlow's errors while it traces or runs a graph; the message contains the user's lines and the error."""
_REPEATS = "tenuto_repeats"
_EXPLANATION = "tenuto_explanation"
_LOADER_ERROR = re.compile(r"^Caught \w+ in .*DataLoader worker process", re.MULTILINE)


class UserError(Exception):
    """An error that the user's code or configuration must fix. `str(error)` says what, why and what to do.

    `at`: function or class of the user that is to blame, if no frame of it is left in the traceback because its return value was
    wrong.
    """

    def __init__(self, message: str, *, at: Any = None) -> None:
        super().__init__(message)
        self.at = at
        """Function or class of the user that is to blame; None: the traceback says it."""


class InvalidHyperparameters(UserError):
    """Raised by model code for hyperparameters that make no sense together: the search replaces the trial by another one, and it
    counts neither as a failure nor for `max_trials`. Raise it before training: it is too late once a result was compared.
    `message`: reason, for users. `at`: function or class to name in the error; None: the place where it is raised."""


class WillRepeat(UserError):
    """A failure that every restart would repeat, such as a checkpoint that the code does not fit: the trial ends at once, and
    neither spends restarts nor goes back to an older checkpoint. If it is raised from another error, that one is shown, too."""


REPEATING = (AssertionError, AttributeError, LookupError, NotImplementedError, PickleError, TypeError, ValueError)
"""Errors of code that loads a checkpoint which every start would repeat: programming errors. RuntimeError is not among them,
because a device or the network raises it, too."""


def repeats_in_loading(error: BaseException) -> bool:
    return isinstance(error, REPEATING) or (isinstance(error, RuntimeError) and "loading state_dict" in str(error))


def mark_repeating(error: BaseException, why: str) -> None:
    """Marks an error as one that would repeat. Its type stays the same, because the user's code may catch it. `why` is shown
    with it."""
    error.add_note(why)
    error.__dict__[_REPEATS] = True


def explain_with(error: BaseException, explanation: str) -> None:
    """Adds words to the first line that `describe` writes about an error of the user's code. The error itself stays the same."""
    error.__dict__.setdefault(_EXPLANATION, explanation)


def will_repeat(error: BaseException) -> bool:
    """True if a restart would meet the error again, such as code that cannot be imported."""
    return isinstance(error, (WillRepeat, ImportError, SyntaxError)) or _REPEATS in error.__dict__


def describe(error: BaseException, context_directory: Path) -> str:
    """Text for the user. First line: `file:line: what`. Then the traceback from the user's first frame on, if there is one."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        place = f"{_shorten(error.filename, context_directory)}:{error.lineno}"
        return f"{place}: {type(error).__name__}: {error.msg}"[:ERROR_CHARACTERS_MAX]
    if _LOADER_ERROR.search(str(error)):
        return _describe_loader_error(str(error), context_directory)
    if str(error).startswith(_GRAPH_ERRORS):
        return _describe_graph_error(type(error).__name__, str(error), context_directory)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename, context_directory)]
    place = f"{_shorten(frames[-1].filename, context_directory)}:{frames[-1].lineno}: " if frames else ""
    if isinstance(error, UserError):
        place = place or _place_of(error.at, context_directory)
        if isinstance(error, WillRepeat) and error.__cause__ is not None:
            return _limited(f"{place}{error}", describe(error.__cause__, context_directory))
        return f"{place}{error}"[:ERROR_CHARACTERS_MAX]
    detail = "".join(traceback.format_exception(type(error), error, _users_part(error.__traceback__, context_directory)))
    for root in {str(context_directory), os.path.realpath(context_directory)}:
        detail = detail.replace(f'File "{root}/', 'File "')  # where the agent unpacked it says nothing to the user
    return _limited(f"{place}{_headline(error)}", detail)


def _place_of(value: Any, context_directory: Path) -> str:
    """File and line where the user defined a function or class; empty if unknown or not the user's."""
    try:
        value = inspect.unwrap(value)
        file, line = inspect.getsourcefile(value) or "", inspect.getsourcelines(value)[1]
    except (OSError, TypeError, ValueError):
        return ""
    return f"{_shorten(file, context_directory)}:{line}: " if _is_users(file, context_directory) else ""


def _headline(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the trial's code ended the process by sys.exit({error.code!r}); raise an exception to fail, return to go on."
    text = str(error).strip()
    name = type(error).__name__
    first = text.splitlines()[0] if text else ""
    if len(first) > HEAD_CHARACTERS_MAX:  # the traceback below it ends with the whole message, or with its end
        first = f"{first[:HEAD_CHARACTERS_MAX]}... ({len(first) - HEAD_CHARACTERS_MAX} characters more)"
    line = f"{name}: {first}" if first else name
    if name == "OutOfMemoryError":
        line += " (use a smaller batch or model, or slots with more memory)"
    elif isinstance(error, FileNotFoundError):
        line += " (paths are those of the machine that trains; relative ones begin in the model directory)"
    elif isinstance(error, ModuleNotFoundError):
        line += " (install it where trials run, or put it into the model directory)"
    elif explanation := error.__dict__.get(_EXPLANATION):
        line += f" ({explanation})"
    return line


def _describe_loader_error(text: str, context_directory: Path) -> str:
    """Text for an error of a data-loader worker, which sends its traceback as text."""
    places = [match for match in _FRAME.finditer(text) if _is_users(match["file"], context_directory)]
    place = f"{_shorten(places[-1]['file'], context_directory)}:{places[-1]['line']}: " if places else ""
    return _limited(f"{place}{text.strip().splitlines()[-1]}", text)


def _describe_graph_error(name: str, text: str, context_directory: Path) -> str:
    """Text for a graph error: the message contains the user's lines, the traceback TensorFlow's."""
    frames = list(_FRAME.finditer(text))
    places = [match for match in frames if _is_users(match["file"], context_directory)]
    place = f"{_shorten(places[-1]['file'], context_directory)}:{places[-1]['line']}: " if places else ""
    after = [line.strip() for line in text[frames[-1].end() if frames else 0 :].splitlines()[1:] if line.strip()]
    if text.startswith("in user code:"):
        return _limited(f"{place}{next((line for line in after if re.match(r'[A-Za-z_.]+: ', line)), name)}", text)
    return _limited(f"{place}{name}: {after[0] if after else 'the graph could not be run'}", text)


def _limited(first_line: str, detail: str) -> str:
    room = max(0, ERROR_CHARACTERS_MAX - len(first_line) - 2)
    if len(detail) > room:
        detail = "...\n" + detail[-max(0, room - 4) :]  # the end of a traceback says most
    return f"{first_line}\n\n{detail.rstrip()}"[:ERROR_CHARACTERS_MAX]


def _users_part(trace: TracebackType | None, context_directory: Path) -> TracebackType | None:
    """The traceback from the user's first frame on; our own frames above it explain nothing to the user."""
    start = trace
    while start is not None and not _is_users(start.tb_frame.f_code.co_filename, context_directory):
        start = start.tb_next
    return start if start is not None else trace


def _is_users(filename: str, context_directory: Path) -> bool:
    if filename.startswith("<"):
        return False  # such as `<frozen importlib._bootstrap>`: no file, and not in the current directory either
    return Path(filename).is_relative_to(context_directory) or Path(os.path.realpath(filename)).is_relative_to(
        os.path.realpath(context_directory)
    )


def _shorten(filename: str, context_directory: Path) -> str:
    for file, root in ((filename, str(context_directory)), (os.path.realpath(filename), os.path.realpath(context_directory))):
        if Path(file).is_relative_to(root):
            return Path(file).relative_to(root).as_posix()
    return filename


def metric_warning(metric: str, found: Mapping[str, float], batches: int) -> str:
    """Reason why a trial with these validation metrics counts as the worst of its search; empty if it does not."""
    if metric not in found:
        return (
            f"searcher.metric is {metric!r}, but validation reports {', '.join(sorted(found)) or 'nothing'}: "
            "this trial counts as the worst. Return that metric, or change searcher.metric."
        )
    if not math.isfinite(found[metric]):
        return (
            f"{metric} is {found[metric]} at batch {batches}: this trial counts as the worst. "
            "Look at its training metrics; a smaller learning rate is the usual cure."
        )
    return ""
