"""`python -m tenuto.services.gateway.adapters.reading`: reads for the gateway what users send, in a process that may be killed.

A parser can be made to work for minutes, or to fill the memory, by a few kilobytes. Here this costs nobody else anything: memory,
files and time have limits, and the process holds no password. It answers frames on its standard output, one for each on its
standard input.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import IO, Any

from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.config.reading import parse_config
from tenuto.services.gateway.adapters.archives import ContextRefused, judge
from tenuto.services.gateway.adapters.code_changes import code_changes

MEMORY_BYTES_MAX = 1 << 30
FILES_MAX = 64
NICENESS = 5
"""The gateway itself goes first."""
HEADER = struct.Struct(">cfI")
"""Kind of the question, seconds that it may take, length of its body in bytes."""
ANSWER = struct.Struct(">cI")
"""Kind of the answer, and the length of its body in bytes."""
CONFIG, ARCHIVE, CHANGES = b"c", b"a", b"d"
DONE, CONFIG_REFUSED, ARCHIVE_REFUSED, FAILED = b"+", b"c", b"a", b"!"


def main() -> None:
    _confine()
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints gets among the answers
    while len(header := questions.read(HEADER.size)) == HEADER.size:
        kind, seconds_max, length = HEADER.unpack(header)
        body = questions.read(length)
        signal.setitimer(signal.ITIMER_REAL, seconds_max)  # also when the gateway is gone
        _say(answers, *_answer(kind, body))
        signal.setitimer(signal.ITIMER_REAL, 0)


def _confine() -> None:
    for what, most in ((resource.RLIMIT_AS, MEMORY_BYTES_MAX), (resource.RLIMIT_NOFILE, FILES_MAX), (resource.RLIMIT_FSIZE, 0)):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    os.nice(NICENESS)


def _answer(kind: bytes, body: bytes) -> tuple[bytes, bytes]:
    try:
        if kind == CONFIG:
            return DONE, parse_config(body).to_json()
        if kind == ARCHIVE:
            return DONE, _json(sorted(judge(Path(body.decode()))))
        if kind == CHANGES:
            changes = code_changes(*map(Path, json.loads(body)))
            return DONE, _json(None if changes is None else [vars(item) for item in changes])
        raise ValueError(f"there is no question {kind!r}")
    except ConfigError as error:
        return CONFIG_REFUSED, _json([[item.path, item.message, item.value] for item in error.problems])
    except ContextRefused as error:
        return ARCHIVE_REFUSED, _json([str(error), error.code])
    except MemoryError:
        return FAILED, b"it needs too much memory"
    except Exception as error:
        return FAILED, f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace")


def _say(answers: IO[bytes], kind: bytes, body: bytes) -> None:
    answers.write(ANSWER.pack(kind, len(body)) + body)
    answers.flush()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


if __name__ == "__main__":
    main()
