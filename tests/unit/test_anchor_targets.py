"""Places where anchors are kept, and what goes wrong there: always an OSError, which ends nothing but the note itself."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tenuto.kernel.anchor_targets import targets
from tenuto.kernel.settings import SettingsError
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.anchors import sign

ANCHORS = [sign(position, bytes(32), position, "key") for position in (1, 2, 3)]


@pytest.fixture
def no_web_server() -> Iterator[str]:
    """Something else answers at that port."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def answer() -> None:
            for _ in range(2):
                try:
                    connection, _address = listener.accept()
                except OSError:
                    return
                with closing(connection):
                    connection.recv(1000)
                    connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/anchors"


def test_what_speaks_no_http_or_is_no_address_fails_as_a_file_does(no_web_server: str) -> None:
    for address in (f"{no_web_server}?token=hidden", "http://host:port/anchors?token=hidden"):
        [target] = targets(address, Stores())
        with pytest.raises(OSError, match="did not take it") as caught:
            target.keep(ANCHORS[0])
        assert "hidden" not in str(caught.value)


def test_a_line_of_which_only_a_part_was_written_costs_no_other_one(tmp_path: Path) -> None:
    file = tmp_path / "anchors.jsonl"
    [target] = targets(file.as_uri(), Stores())
    target.keep(ANCHORS[0])
    with file.open("ab") as cut:
        cut.write(ANCHORS[1].to_json()[:40])
    assert target.read() == [ANCHORS[0]]
    target.keep(ANCHORS[2])
    assert target.read() == [ANCHORS[0], ANCHORS[2]]
    file.write_bytes(b'{"position": 1}\n')
    with pytest.raises(OSError, match="not an anchor"):
        target.read()


def test_a_store_may_hold_other_things(tmp_path: Path) -> None:
    shared = tmp_path / "checkpoints"
    (shared / "3/3-1/manifests").mkdir(parents=True)
    (shared / "3/3-1/manifests/3-1-1-10.json").write_text("{}")
    [target] = targets("store://shared", Stores(shared))
    target.keep(ANCHORS[0])
    assert target.read() == [ANCHORS[0]]


def test_an_address_that_cannot_be_taken_apart_is_refused_in_one_sentence() -> None:
    with pytest.raises(SettingsError, match=r"has 'https://\[1', but must be addresses"):
        targets("https://[1", Stores())
