"""A pytest plugin that writes down what became of each test, one JSON object a line, for what reads a run when it is over.

Loaded with `-p tests.suite.recording`; the file is named by TENUTO_SUITE_RECORD. Among several test processes only the one that
gives out the tests writes.
"""

from __future__ import annotations

import json
import os
from typing import IO, Any

import pytest

VARIABLE = "TENUTO_SUITE_RECORD"
TEXT_CHARACTERS_MAX = 200_000
"""Longest text of one failure; its head and its tail are kept. A failed comparison of large values prints megabytes."""

_file: IO[str] | None = None


def pytest_configure(config: pytest.Config) -> None:
    global _file
    path = os.environ.get(VARIABLE)
    if path and not hasattr(config, "workerinput"):
        _file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed with the session)


def pytest_unconfigure() -> None:
    global _file
    if _file is not None:
        _file.close()
        _file = None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    worker = getattr(report, "worker_id", "")
    text = _text(report) if report.failed else ""
    _write(
        kind="test", id=report.nodeid, when=report.when, outcome=report.outcome, seconds=report.duration, worker=worker, text=text
    )


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(kind="collection", id=report.nodeid, text=_text(report))


def _text(report: pytest.TestReport | pytest.CollectReport) -> str:
    parts = [report.longreprtext, *(f"--- {title} ---\n{content}" for title, content in report.sections)]
    text = "\n".join(parts)
    if len(text) <= TEXT_CHARACTERS_MAX:
        return text
    half = TEXT_CHARACTERS_MAX // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _write(**record: Any) -> None:
    if _file is not None:
        _file.write(json.dumps(record) + "\n")
        _file.flush()  # a run that is killed leaves what it had found
