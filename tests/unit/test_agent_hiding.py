"""What a run prints never shows its secrets."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tenuto.workers.agent.hiding import forget, hiding, keep, kept
from tenuto.workers.agent.output import read_lines
from tenuto.workers.agent.processes import RunFiles


@given(st.text(min_size=8).filter(lambda text: len(text.strip()) >= 8), st.text(), st.text())
def test_no_value_is_left(value: str, before: str, after: str) -> None:
    hide = hiding({"KEY": value})
    assert value.strip() not in hide(before + value + after).replace("[secret KEY]", "")


def test_the_longest_goes_first_and_each_line_of_several() -> None:
    hide = hiding({"A": "password", "B": "password-of-ada", "PEM": "-----BEGIN KEY-----\nMIIEabcdef\nx\n-----END KEY-----"})
    assert hide("password-of-ada password") == "[secret B] [secret A]"
    assert hide("MIIEabcdef x") == "[secret PEM] x"
    assert hiding({})("anything") == "anything"


def test_a_line_is_hidden_before_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(b"x" * 7_995 + b"secret-value\n")
    [line] = read_lines(path, 0, final=True, hide=hiding({"KEY": "secret-value"})).texts
    assert "secre" not in line.replace("[secr", "")


def test_an_agent_that_is_started_again_knows_what_to_hide(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "runs" / "1-1-1")
    assert kept(files) == {}
    keep(files, {"KEY": "value-of-key"})
    assert kept(files) == {"KEY": "value-of-key"}
    assert (tmp_path / "secrets" / "1-1-1.json").stat().st_mode & 0o777 == 0o600
    forget(files)
    assert kept(files) == {}
