"""What a run prints never shows its secrets."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tenuto.workers.agent.hiding import UNREADABLE, forget, hiding, keep, kept_hiding, sweep
from tenuto.workers.agent.output import log_texts
from tenuto.workers.agent.runtimes.runtime import Output


@given(st.text(min_size=8).filter(lambda text: len(text.strip()) >= 8), st.text(), st.text())
def test_no_value_is_left(value: str, before: str, after: str) -> None:
    hide = hiding({"KEY": value})
    assert value.strip() not in hide(before + value + after).replace("[secret KEY]", "")


def test_the_longest_goes_first_and_each_line_of_several() -> None:
    hide = hiding({"A": "password", "B": "password-of-ada", "PEM": "-----BEGIN KEY-----\nMIIEabcdef\nx\n-----END KEY-----"})
    assert hide("password-of-ada password") == "[secret B] [secret A]"
    assert hide("MIIEabcdef x") == "[secret PEM] x"
    assert hiding({})("anything") == "anything"


def test_a_line_is_hidden_before_it_is_cut() -> None:
    printed = Output(("x" * 7_995 + "secret-value",), ("y" * 7_995 + "secret-value",), (8_008, 8_008))
    texts = log_texts(printed, hiding({"KEY": "secret-value"}))
    for [line] in texts.values():
        assert len(line) == 8_000
        assert "secre" not in line.replace("[secr", "")


def test_an_agent_that_is_started_again_knows_what_to_hide(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "1-1-1.json"
    assert kept_hiding(tmp_path, "1-1-1")("value-of-key") == "value-of-key"
    keep(tmp_path, "1-1-1", {"KEY": "value-of-key"})
    assert kept_hiding(tmp_path, "1-1-1")("the value-of-key") == "the [secret KEY]"
    assert path.stat().st_mode & 0o777 == 0o600
    forget(tmp_path, "1-1-1")
    assert not path.exists()


def test_where_the_secrets_cannot_be_read_nothing_is_shown(tmp_path: Path) -> None:
    """A power failure may leave an empty file."""
    keep(tmp_path, "1-1-1", {"KEY": "value-of-key"})
    (tmp_path / "secrets" / "1-1-1.json").write_text("")
    assert kept_hiding(tmp_path, "1-1-1")("the value-of-key") == UNREADABLE


def test_secrets_of_runs_that_nobody_carries_on_are_removed(tmp_path: Path) -> None:
    for name in ("1-1-1", "1-2-1"):
        keep(tmp_path, name, {"KEY": "value-of-key"})
    sweep(tmp_path, {"1-2-1"})
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["1-2-1.json"]
