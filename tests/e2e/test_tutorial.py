"""docs/tutorial.md: each file and command of the page as a newcomer has them, in order, on a cluster of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.embedded.postgres_home import HOME_VARIABLE
from tenuto.embedded.process import REST_PORTS
from tests.support.live_cluster import COMMAND_SECONDS_MAX, CONFINED
from tests.support.ports import own_port

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"^```(?:\w+ file=(\S+)|(console))\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def steps(console: str) -> Iterator[tuple[str, str]]:
    """Each command of a block, with what the page shows of its output."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def like(shown: str) -> str:
    """Pattern of an output: `...` on a line of its own stands for any lines, within a line for any text."""
    lines = ["(?:.*\n)*?" if line == "..." else _line(line) for line in shown.splitlines()]
    return "".join(lines) + r"\s*"


def _line(line: str) -> str:
    return ".*".join(re.sub(r"(\\ )+", r"\\s+", re.escape(part)) for part in line.split("...")) + r"[ ]*\n"


@pytest.mark.parametrize(
    ("shown", "said", "fits"),
    [
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("took ... s\n", "took   1.2 s  \n", True),
        ("took ... s\n", "took 1.2 s\nmore\n", False),
        ("", "", True),
        ("", "a word\n", False),
    ],
)
def test_what_a_page_shows_is_compared(shown: str, said: str, fits: bool) -> None:
    assert (re.fullmatch(like(shown), said) is not None) is fits


def test_every_step_of_the_tutorial() -> None:
    with tempfile.TemporaryDirectory(prefix="tenuto-tutorial-") as home:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_") or name == HOME_VARIABLE}
        programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        environment = kept | CONFINED | {"TENUTO_DATA_DIRECTORY": f"{home}/data", "PATH": programs}
        try:
            ran = 0
            for file, _, text in BLOCKS:
                if file:
                    path = Path(home, file)
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(text)
                    continue
                for command, shown in steps(text):
                    _run(command, shown, home, environment)
                    ran += 1
            assert ran == 14
            assert {"model.safetensors"} <= {path.name for path in Path(home, "best").iterdir()}
        finally:
            subprocess.run(["tenuto", "down"], cwd=home, env=environment, timeout=COMMAND_SECONDS_MAX, check=False)


def _run(command: str, shown: str, home: str, environment: dict[str, str]) -> None:
    if command.startswith("tenuto up"):  # other clusters of the suite may have the usual port
        command += f" --port {own_port(REST_PORTS)}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert re.fullmatch(like(shown), done.stdout), f"{command} has printed\n{done.stdout}where the page shows\n{shown}"
