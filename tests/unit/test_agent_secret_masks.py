"""Secrets never appear in the stored output of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.workers.agent.outcome import name_end
from tenuto.workers.agent.output import log_texts
from tenuto.workers.agent.runtimes import files as files_module
from tenuto.workers.agent.runtimes.files import RunFiles, read_exit, read_lines
from tenuto.workers.agent.runtimes.runtime import Output
from tenuto.workers.agent.secret_masks import LINE_CHARACTERS_MIN, UNREADABLE, mask_of, remove, store, stored_mask, sweep
from tenuto.workers.endings import ERROR_CHARACTERS_MAX, STDERR_BYTES_READ


@given(st.text(min_size=8).filter(lambda text: len(text.strip()) >= 8), st.text(), st.text())
def test_no_value_is_left(value: str, before: str, after: str) -> None:
    hide = mask_of({"KEY": value})
    assert value.strip() not in hide(before + value + after).replace("[secret KEY]", "")


def test_the_longest_goes_first_and_each_line_of_several() -> None:
    hide = mask_of({"A": "password", "B": "password-of-ada", "PEM": "-----BEGIN KEY-----\nMIIEabcdef\nx\n-----END KEY-----"})
    assert hide("password-of-ada password") == "[secret B] [secret A]"
    assert hide("MIIEabcdef x") == "[secret PEM] x"
    assert mask_of({})("anything") == "anything"


def test_a_line_is_hidden_before_it_is_cut() -> None:
    printed = Output(("x" * 7_995 + "secret-value",), ("y" * 7_995 + "secret-value",), (8_008, 8_008))
    texts = log_texts(printed, mask_of({"KEY": "secret-value"}))
    for [line] in texts.values():
        assert len(line) == 8_000
        assert "secre" not in line.replace("[secr", "")


def test_a_line_that_is_read_in_pieces_is_cut_beside_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "READ_BYTES_MAX", 64)
    hide, path = mask_of({"KEY": "secret-value", "OTHER": "value-of-other"}), tmp_path / "stdout"
    for before in range(80):
        path.write_text("x" * before + "secret-value" + "y" * 200)
        texts, offset = [], 0
        while (chunk := read_lines(path, offset, final=True, cut=hide.cut)).texts:
            texts += map(hide, chunk.texts)
            offset = chunk.offset
        assert "".join(texts) == hide(path.read_text())


def test_what_is_said_of_an_end_shows_no_part_of_a_secret(tmp_path: Path) -> None:
    files, hide = RunFiles(tmp_path), mask_of({"KEY": "secret-value"})

    def said() -> str:
        return name_end(read_exit(files), None, None, hide).error or ""

    files.exit.write_text("1")

    files.stderr.write_text("secret-value" + "x" * (STDERR_BYTES_READ - 8))  # its end is read
    first, _, rest = said().partition("\n")
    assert first.startswith("The worker process exited with code 1, and told nothing of its end.")
    assert rest.startswith("[secret KEY]xxx")
    files.error.write_text("x" * (ERROR_CHARACTERS_MAX - 10) + "secret-value, and more")  # is shortened by the agent
    assert "secret" not in said().replace("[secret KEY]"[:10], "")
    files.error.write_text("x" * (ERROR_CHARACTERS_MAX - 10) + "secret-val")  # was shortened by the worker
    assert "secret" not in said().replace("[secret KEY]"[:10], "")
    files.error.write_text("model_def.py:3: it failed\n\n...\ncret-value is no key")
    assert said().endswith("...\n[secret KEY] is no key")
    files.error.write_text("a text that is whole is left alone, as it begins: secret-val")
    assert said().endswith("secret-val")


@given(st.text("ab", min_size=8, max_size=12), st.integers(0, 60), st.integers(0, 60))
def test_what_is_left_of_a_torn_secret_is_found_at_both_ends(value: str, start: int, length: int) -> None:
    """No more of it is left than says nothing."""
    torn = mask_of({"KEY": value}).torn("head\n" + value[start % len(value) :] + "." + value[: length % len(value)], at_end=True)
    left = torn.replace("[secret KEY]", "").removeprefix("head\n")
    begin, _, end = left.partition(".")
    assert max(len(begin), len(end)) < LINE_CHARACTERS_MIN


def test_an_agent_that_is_started_again_knows_what_to_hide(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "1-1-1.json"
    assert stored_mask(tmp_path, "1-1-1")("value-of-key") == "value-of-key"
    store(tmp_path, "1-1-1", {"KEY": "value-of-key"})
    assert stored_mask(tmp_path, "1-1-1")("the value-of-key") == "the [secret KEY]"
    assert path.stat().st_mode & 0o777 == 0o600
    remove(tmp_path, "1-1-1")
    assert not path.exists()


def test_where_the_secrets_cannot_be_read_nothing_is_shown(tmp_path: Path) -> None:
    """A power failure may leave an empty file."""
    store(tmp_path, "1-1-1", {"KEY": "value-of-key"})
    (tmp_path / "secrets" / "1-1-1.json").write_text("")
    assert stored_mask(tmp_path, "1-1-1")("the value-of-key") == UNREADABLE


def test_secrets_of_runs_that_nobody_carries_on_are_removed(tmp_path: Path) -> None:
    for name in ("1-1-1", "1-2-1"):
        store(tmp_path, name, {"KEY": "value-of-key"})
    sweep(tmp_path, {"1-2-1"})
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["1-2-1.json"]
