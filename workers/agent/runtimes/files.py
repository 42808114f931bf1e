"""Files of a run: output, exit code and error sentence. Its processes write them whether an agent is running or not; a later
agent reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tenuto.schemas.events.run import Cause
from tenuto.schemas.text import storable
from tenuto.workers.agent.runtimes.runtime import Cut, Exit
from tenuto.workers.agent.untrusted_files import is_shortage, open_foreign, read_foreign
from tenuto.workers.endings import KILLED, REFUSED, SIGNAL_EXIT_BASE, STDERR_BYTES_READ, STDERR_LINES_SHOWN

READ_BYTES_MAX = 256 * 1024
"""Most bytes per read: bounds memory and the size of a report for a worker that prints without end."""


@dataclass(frozen=True)
class RunFiles:
    """Paths of one run's files."""

    directory: Path
    owner: int | None = None
    """User id of the run's processes, if it is not the agent's own; files of other users are not read."""

    @property
    def exit(self) -> Path:
        return self.directory / "exit"

    @property
    def stdout(self) -> Path:
        return self.directory / "stdout"

    @property
    def stderr(self) -> Path:
        return self.directory / "stderr"

    @property
    def error(self) -> Path:
        return self.directory / "error.txt"

    def of_rank(self, rank: int) -> RunFiles:
        """Files of one rank of a gang, beside those of its supervisor."""
        return RunFiles(self.directory / f"rank-{rank}", self.owner)


@dataclass(frozen=True)
class OutputChunk:
    texts: tuple[str, ...]
    offset: int
    """Offset to go on from, in bytes."""
    bar: bool = False
    """True for a progress bar that goes on: lines that were overwritten (carriage returns), and none that ended."""


def read_lines(path: Path, offset: int, *, final: bool, owner: int | None = None, cut: Cut = len) -> OutputChunk:
    """Complete lines from `offset` on; an unfinished last line only if it is `final` or too long. Of lines that overwrite each
    other by carriage returns, as progress bars do, there is the last, as on a terminal. `cut`: number of bytes at which a line
    that is too long may be cut."""
    try:
        with open_foreign(path, owner) as file:
            file.seek(offset)
            data = file.read(READ_BYTES_MAX)
    except OSError:
        return OutputChunk((), offset)
    full = len(data) == READ_BYTES_MAX
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    if final and not full:
        end = len(data)
    elif full and end == 0:
        end = cut(data)
    lines = [_last_shown(line) for line in data[:end].replace(b"\r\n", b"\n").split(b"\n")]
    bar = end > 0 and not (final or full) and b"\n" not in data[:end]
    return OutputChunk(tuple(line.decode(errors="replace") for line in lines if line), offset + end, bar)


def _last_shown(line: bytes) -> bytes:
    return next((part for part in reversed(line.split(b"\r")) if part), b"")


def read_exit(files: RunFiles) -> Exit:
    """Raises OSError where the agent could not look: a worker that ended well would be taken for one that was killed."""
    (code, how), said = _read_code(files), _said(files)
    signaled = code is not None and (how == KILLED or (not how and code > SIGNAL_EXIT_BASE))
    cause: Cause | None = "will_repeat" if how == REFUSED else None
    lines = () if said or signaled or code is None else _last_lines(files)
    return Exit(code, said, lines, signaled=signaled, cause=cause)


def read_exit_code(files: RunFiles) -> int | None:
    """The worker's exit code as its parent saw it. None: the parent was killed, too. Raises OSError if that cannot be seen."""
    return _read_code(files)[0]


def _read_code(files: RunFiles) -> tuple[int | None, str]:
    """Exit code, and the word behind it. Empty: from the shell that an agent of an earlier release put above its cold workers; to
    it, a program that exits with 137 looked like one that was killed."""
    try:
        code, _, how = read_foreign(files.exit, files.owner).strip().partition(" ")
        return int(code), how
    except ValueError:
        return None, ""
    except OSError as error:
        if is_shortage(error):
            raise
        return None, ""


def _said(files: RunFiles) -> str:
    try:
        return read_foreign(files.error, files.owner).strip()
    except OSError as error:
        if is_shortage(error):
            raise
        return ""


def _last_lines(files: RunFiles) -> tuple[str, ...]:
    try:
        with open_foreign(files.stderr, files.owner) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - STDERR_BYTES_READ))
            return tuple(storable(file.read().decode(errors="replace")).splitlines()[-STDERR_LINES_SHOWN:])
    except OSError:
        return ()
