"""What is kept of a run's output: long lines are cut with a mark, progress bars folded, and no log grows without bound."""

from __future__ import annotations

from pathlib import Path

from tenuto.workers.agent.output import (
    LINE_CHARACTERS_MAX,
    LOG_BYTES_MAX,
    Bars,
    kept_reports,
    log_reports,
    log_texts,
    shortened,
)
from tenuto.workers.agent.runtimes.files import read_lines
from tenuto.workers.agent.runtimes.runtime import Output

SECOND_US = 1_000_000


def test_a_long_line_is_cut_with_a_mark() -> None:
    line = "x" * LINE_CHARACTERS_MAX
    assert shortened(line) == line
    found = shortened(line + "y" * 1_000)
    kept = found.count("x")
    assert found == "x" * kept + f" [cut here: {LINE_CHARACTERS_MAX + 1_000 - kept} more characters]"
    assert len(found) <= LINE_CHARACTERS_MAX


def test_lines_that_overwrite_each_other_are_folded_to_the_last(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"one\r\n\r 10%\r 50%\r100%\nmade\n\r 1%\r 2%\r")
    found = read_lines(path, 0, final=False)
    assert (found.texts, found.bar) == (("one", "100%", "made", " 2%"), False)
    path.write_bytes(b"\r 1%\r 2%\r 3")
    assert read_lines(path, 0, final=False).texts == (" 2%",)
    assert read_lines(path, 0, final=False).bar
    assert read_lines(path, 0, final=True).texts == (" 3",)


def test_a_bar_that_goes_on_is_told_once_a_second() -> None:
    bars, told = Bars(), []
    for tenth in range(30):
        bar = Output(("line",), (f"{tenth}%",), (100 + tenth, 200 + tenth), (False, True))
        output = bars.hold(bar, None, (99, 199), (1_000 * SECOND_US) + tenth * SECOND_US // 10)
        assert (output.stdout, output.offsets[0]) == (("line",), 100 + tenth), "whole lines are not held back"
        assert (output.offsets[1] == 199) is (not output.stderr), "what is held back is read again"
        told += output.stderr
    assert told == ["0%", "10%", "20%"]


def test_a_log_has_an_end_that_is_said_and_each_stream_its_own() -> None:
    def kept(before: tuple[int, int], after: tuple[int, int]) -> list[str]:
        texts = log_texts(Output(("out",), ("err",), after), lambda text: text)  # type: ignore[arg-type]
        reports = log_reports("1-1", "1-1-1", 3, 7, texts)
        return [f"{line.stream} {line.text}" for report in kept_reports(reports, before, after) for line in report.lines]

    below = LOG_BYTES_MAX - 1
    assert kept((0, 0), (10, 10)) == ["stdout out", "stderr err"]
    *lines, said = kept((below, 0), (LOG_BYTES_MAX + 5, 10))
    assert lines == ["stdout out", "stderr err"]
    assert said.startswith(
        "tenuto The log ends here: this start of the trial has printed 64 MiB to stdout, the most that is kept."
    )
    assert kept((LOG_BYTES_MAX + 5, 10), (LOG_BYTES_MAX + 9, 20)) == ["stderr err"]
    assert kept((LOG_BYTES_MAX, LOG_BYTES_MAX), (LOG_BYTES_MAX + 9, LOG_BYTES_MAX + 9)) == []
