"""The agent reads what users' code writes: no links, no pipes, nobody else's files; and tokens travel outside environments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.workers.agent.database import open_database
from tenuto.workers.agent.runtimes.files import read_lines
from tenuto.workers.agent.untrusted_files import TEXT_BYTES_MAX, open_foreign, place, read_foreign
from tenuto.workers.launch.token import DESCRIPTOR_VARIABLE, TOKEN_VARIABLE, hand_down_token, take_token

SHOW = "import os, sys; sys.path.insert(0, sys.argv[1]); from tenuto.workers.launch.token import take_token; " + (
    "block = open('/proc/self/environ').read(); print(take_token(os.environ), 'secret' in block, sorted(os.environ))"
)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    secret, link = tmp_path / "secret", tmp_path / "stdout"
    secret.write_text("the token\n")
    link.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        open_foreign(link, None)
    assert read_lines(link, 0, final=True).texts == ()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stdout")
    with pytest.raises(OSError, match="no regular file"):
        open_foreign(tmp_path / "stdout", None)


def test_a_file_of_somebody_else_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "stdout"
    file.write_text("a line\n")
    assert read_foreign(file, os.getuid()) == "a line\n"
    with pytest.raises(PermissionError, match="belongs to somebody else"):
        read_foreign(file, os.getuid() + 1)


def test_what_is_read_whole_is_bounded(tmp_path: Path) -> None:
    with (tmp_path / "error.txt").open("wb") as file:
        file.truncate(10 * TEXT_BYTES_MAX)
    assert len(read_foreign(tmp_path / "error.txt", None)) == TEXT_BYTES_MAX


def test_a_placed_file_replaces_a_link(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "rendezvous"
    victim.write_text("untouched")
    path.symlink_to(victim)
    place(path, "here")
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("untouched", "here", False)


def test_a_token_is_in_no_environment() -> None:
    with hand_down_token({**os.environ, TOKEN_VARIABLE: "secret"}) as (variables, descriptors):
        assert TOKEN_VARIABLE not in variables
        command = [sys.executable, "-c", SHOW, str(Path(__file__).parents[2] / "src")]
        done = subprocess.run(command, env=variables, pass_fds=descriptors, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("secret False ")
    assert TOKEN_VARIABLE not in done.stdout
    assert DESCRIPTOR_VARIABLE not in done.stdout
    forked = {TOKEN_VARIABLE: "secret"}
    assert (take_token(forked), forked) == ("secret", {})
    with pytest.raises(KeyError, match=TOKEN_VARIABLE):
        take_token({})


def test_the_agents_database_is_closed_with_its_log(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        connection = open_database(tmp_path / "agent.sqlite")
        connection.execute("INSERT INTO meta VALUES ('a', 'b')")
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        connection.close()
    finally:
        os.umask(before)
    assert modes == {"agent.sqlite": 0o600, "agent.sqlite-wal": 0o600, "agent.sqlite-shm": 0o600}
