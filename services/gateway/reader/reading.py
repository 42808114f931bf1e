"""`python -m tenuto.services.gateway.reader.reading`: reads files of users for the gateway, in a process that may be killed.

A parser can be made to work for minutes, or to fill the memory, by a few kilobytes. Here this harms only its sender: memory,
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
from tenuto.schemas.config.layers import TEMPLATE, Layer
from tenuto.schemas.config.merging import check_part, resolved
from tenuto.schemas.config.reading import load_yaml, parse_config, validated
from tenuto.schemas.config.yaml_text import differences
from tenuto.services.gateway.reader.archives import ContextRefused, judge
from tenuto.services.gateway.reader.code_changes import code_changes
from tenuto.services.gateway.reader.context_files import NoContext, content, listed

MEMORY_BYTES_MAX = 1 << 30
FILES_MAX = 64
NICENESS = 5
"""Niceness of the process: the gateway itself goes first."""
HEADER = struct.Struct(">cfI")
"""Kind of the question, seconds that it may take, length of its body in bytes."""
ANSWER = struct.Struct(">cI")
"""Kind of the answer, and the length of its body in bytes."""
CONFIG, LAYERED, PART, ARCHIVE, CHANGES, FILES, FILE = b"c", b"m", b"p", b"a", b"d", b"l", b"f"
DONE, CONFIG_REFUSED, ARCHIVE_REFUSED, GONE, FAILED = b"+", b"c", b"a", b"-", b"!"


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
            return _config(body)
        if kind == LAYERED:
            return DONE, _json(_layered(**json.loads(body)))
        if kind == PART:
            return DONE, _json([check_part(load_yaml(body)), _notes(body)])
        if kind == ARCHIVE:
            return DONE, _json(sorted(judge(Path(body.decode()))))
        if kind == CHANGES:
            changes = code_changes(*map(Path, json.loads(body)))
            return DONE, _json(None if changes is None else [vars(item) for item in changes])
        if kind == FILES:
            return DONE, _json(listed(Path(body.decode())))
        if kind == FILE:
            archive, path = json.loads(body)
            return DONE, _json(content(Path(archive), path))
        raise ValueError(f"there is no question {kind!r}")
    except NoContext as error:
        return GONE, str(error).encode("utf-8", "backslashreplace")
    except ConfigError as error:
        return CONFIG_REFUSED, _json({"problems": _problems(error)})
    except ContextRefused as error:
        return ARCHIVE_REFUSED, _json([str(error), error.code])
    except MemoryError:
        return FAILED, b"it needs too much memory"
    except Exception as error:
        return FAILED, f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace")


def _config(text: bytes) -> tuple[bytes, bytes]:
    """Configuration with notes on values that other readers of YAML take for something else. A refusal, too, names the template
    and the workspace of the text, as with their settings it may be valid."""
    document = load_yaml(text)
    if not isinstance(document, dict):
        return DONE, parse_config(text).to_json()  # which refuses it
    resources = document.get("resources")
    workspace = resources.get("workspace") if isinstance(resources, dict) else None
    names = {"template": document.get(TEMPLATE), "workspace": workspace}
    named: dict[str, Any] = {name: value for name, value in names.items() if isinstance(value, str)}
    named["notes"] = _notes(text)
    try:
        return DONE, _json(named) + b"\n" + validated(document).to_json()
    except ConfigError as error:
        return CONFIG_REFUSED, _json({"problems": _problems(error), "named": named})


def _notes(text: bytes) -> list[str]:
    return list(map(str, differences(text)))


def _layered(text: str, layers: list[dict[str, Any]], said: list[str] | None) -> dict[str, Any]:
    """Merged configuration. `said`: paths that the command line set; with them the answer has every value and its source."""
    document = load_yaml(text.encode("latin-1"))
    found = resolved(document if isinstance(document, dict) else {}, [Layer(**item) for item in layers])
    paths = [[found.count_of(source), found.paths_of(source)] for source in range(1, len(layers) + 1)]
    values = found.values(frozenset(said)) if said is not None else []
    return {"config": json.loads(found.config.to_json()), "paths": paths, "values": values}


def _problems(error: ConfigError) -> list[list[str]]:
    return [[item.path, item.message, item.value] for item in error.problems]


def _say(answers: IO[bytes], kind: bytes, body: bytes) -> None:
    answers.write(ANSWER.pack(kind, len(body)) + body)
    answers.flush()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


if __name__ == "__main__":
    main()
