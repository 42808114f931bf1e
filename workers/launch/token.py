"""The token of an allocation on its way to the processes that report for it.

It is in no process's environment, which can be read in /proc for as long as the process lives, and is inherited by all that it
starts. A process that is started anew reads the token from a pipe; a forked one has it already.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, MutableMapping

TOKEN_VARIABLE = "TENUTO_TOKEN"
"""Variable of a forked process with the token, until it has read it."""
DESCRIPTOR_VARIABLE = "TENUTO_TOKEN_DESCRIPTOR"
"""Variable of a process that is started anew: descriptor from which it reads the token, once."""
TOKEN_BYTES_MAX = 4096
"""Most bytes of a token: a pipe holds this much without a reader."""


@contextlib.contextmanager
def hand_down_token(environment: Mapping[str, str]) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """(environment, descriptors to pass) for a process that is started within the context. Raises OSError."""
    variables = dict(environment)
    token = variables.pop(TOKEN_VARIABLE, None)
    if token is None:
        yield variables, ()
        return
    reading, writing = os.pipe()
    try:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(token.encode()[:TOKEN_BYTES_MAX])
        variables[DESCRIPTOR_VARIABLE] = str(reading)
        yield variables, (reading,)
    finally:
        os.close(reading)


def take_token(environment: MutableMapping[str, str]) -> str:
    """The token, which is removed from the environment so that processes of the user's code do not have it. Raises KeyError
    with the variable's name."""
    descriptor = environment.pop(DESCRIPTOR_VARIABLE, None)
    if descriptor is not None:
        with contextlib.suppress(OSError, ValueError), os.fdopen(int(descriptor), "rb") as pipe:
            if token := pipe.read(TOKEN_BYTES_MAX):
                return token.decode()
    return environment.pop(TOKEN_VARIABLE)
