"""Checks at the start that the user's functions can be called with the arguments that they will get, so that a wrong one is
reported with its file and line before anything was trained, and one that would never be called is noticed."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tenuto.workers.errors import UserError, WillRepeat

NEAR = 0.88
"""Similarity (difflib's ratio) from which a name is taken for a misspelling of another one."""
_PLAIN = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_class(kind: type, base: type, argument: str = "context") -> None:
    """Checks a class before an instance is made: all required methods exist, and `__init__` takes its argument. Raises
    UserError."""
    missing = sorted(getattr(kind, "__abstractmethods__", ()))
    if missing:
        needs = " and ".join([", ".join(missing[:-1]), missing[-1]] if len(missing) > 1 else missing)
        raise WillRepeat(f"{kind.__name__} needs {needs}: write what {base.__name__} asks for.", at=kind)
    if not _fits(kind, 1):
        raise WillRepeat(
            f"{kind.__name__}.__init__ is called with one argument, the {argument}: write def __init__(self, {argument}).",
            at=vars(kind).get("__init__", kind),
        )


def check_methods(subject: Any, base: type, calls: Mapping[str, Sequence[str]]) -> None:
    """Checks methods. `calls`: names of the arguments of each. Methods of `base` itself are not checked. Raises UserError."""
    for name, arguments in calls.items():
        if is_overridden(subject, base, name):
            check_call(subject, name, arguments)


def is_overridden(subject: Any, base: type, name: str) -> bool:
    return name in vars(subject) or getattr(type(subject), name, None) is not getattr(base, name, None)


def check_call(subject: Any, name: str, arguments: Sequence[str]) -> None:
    """Raises UserError if the method cannot be called with this number of arguments."""
    function = getattr(subject, name)
    check_runs(subject, name)
    if not _fits(function, len(arguments)):
        raise _wrong_arguments(subject, name, [arguments])


def check_function(function: Any, arguments: Sequence[str]) -> None:
    """Like `check_call`, for a function that belongs to no object."""
    if not _fits(function, len(arguments)):
        name = getattr(function, "__name__", repr(function))
        raise WillRepeat(
            f"{name} is called with {len(arguments)} argument ({', '.join(arguments)}), which it does not take.", at=function
        )


def check_runs(subject: Any, name: str) -> None:
    """Raises UserError if calling the method would not run its body."""
    function = getattr(subject, name)
    where = f"{type(subject).__name__}.{name}"
    if not callable(function):
        raise WillRepeat(f"{where} is {function!r}, and no function; write a method, or leave it out.", at=type(subject))
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        what = "has a yield" if inspect.isgeneratorfunction(function) else "is an async function"
        raise WillRepeat(f"{where} {what}, so a call would not run it; write a plain function.", at=function)


def caller(subject: Any, name: str, arguments: Sequence[str], optional: int = 0) -> Callable[..., Any]:
    """Function that calls the method with all `arguments`, in this order, whichever of them the method takes: those that it
    names, in any order; others by position, if it takes all. `optional`: number of last arguments that may be missing. Raises
    UserError."""
    function: Callable[..., Any] = getattr(subject, name)
    check_runs(subject, name)
    parameters = _parameters(function)
    if parameters is None or [parameter.name for parameter in parameters] == list(arguments):
        return function
    required = [
        parameter for parameter in parameters if parameter.default is parameter.empty and parameter.kind not in _ANY_NUMBER
    ]
    positional = [parameter for parameter in required if parameter.kind in _PLAIN]
    whole = len(positional) == len(arguments)
    if not positional and any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return lambda *values: function(*values[: len(arguments) - optional])
    named = {
        parameter.name: arguments.index(parameter.name)
        for parameter in parameters
        if parameter.name in arguments and parameter.kind not in _ANY_NUMBER
    }
    by_position = [named.get(parameter.name, index if whole or index == 0 else -1) for index, parameter in enumerate(positional)]
    by_name = {key: place for key, place in named.items() if key not in {parameter.name for parameter in positional}}
    missing = {parameter.name for parameter in required if parameter.kind not in _PLAIN} - by_name.keys()
    given = [*by_position, *by_name.values()]
    if missing or -1 in given or len(set(given)) < len(given) or 0 not in given:
        raise _wrong_arguments(subject, name, [arguments[: len(arguments) - optional], arguments] if optional else [arguments])

    def call(*values: Any) -> Any:
        return function(*[values[place] for place in by_position], **{key: values[place] for key, place in by_name.items()})

    return call


def _parameters(function: Any) -> list[inspect.Parameter] | None:
    """Parameters of a function; None if Python cannot tell, as for some compiled functions."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _fits(function: Any, count: int) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _wrong_arguments(subject: Any, name: str, forms: Sequence[Sequence[str]]) -> UserError:
    function = getattr(subject, name)
    given = ", ".join(str(parameter).split(":")[0].split("=")[0] for parameter in _parameters(function) or ())
    ways = " or ".join(f"{name}({', '.join(form)})" for form in forms)
    wanted = ", ".join(["self", *forms[0]])
    return WillRepeat(
        f"{type(subject).__name__}.{name}({given}) cannot be called as {ways}: write def {name}({wanted}).", at=function
    )


def takes(function: Any, name: str) -> bool:
    return any(parameter.name == name for parameter in _parameters(function) or ())


def first_argument(function: Any) -> str | None:
    return next((parameter.name for parameter in _parameters(function) or ()), None)


def unknown_hooks(subject: Any, base: type, known: Iterable[str]) -> list[str]:
    """Methods that are named like hooks (`on_...`) and are none: nothing ever calls them."""
    names = {name for name in (*dir(type(subject)), *vars(subject)) if name.startswith("on_")}
    return sorted(name for name in names - set(known) if not hasattr(base, name) and callable(getattr(subject, name, None)))


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that is probably meant; None if none is similar."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=NEAR)), None)


def misspelt(subject: Any, base: type, known: Iterable[str]) -> list[tuple[str, str]]:
    """Methods of the user's class that nothing calls, with names similar to `known` ones: (name, probably meant)."""
    known = set(known)
    found = []
    for kind in type(subject).__mro__:
        if kind is base:
            break
        for name, value in vars(kind).items():
            if not callable(value) or name.startswith("_") or name in known or hasattr(base, name):
                continue
            if (meant := near(name, known)) and not is_overridden(subject, base, meant):
                found.append((name, meant))
    return found
