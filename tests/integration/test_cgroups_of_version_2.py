"""Cgroups of version 2 on the kernel's own files: what the agent does there whatever controllers the hierarchy has. Where those
of memory and processors are bound to version 1, hugetlb stands in for them: the kernel's rules are the same for each."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.workers.agent.runtimes.process.cgroup_places import mounts
from tenuto.workers.agent.runtimes.process.cgroups import LEAF, Cgroups, ProcessLimits, Tree
from tests.support import litter

STANDS_IN = "hugetlb"
LIMITS = ProcessLimits(64 << 20, 1.0)


def unified() -> Path | None:
    found = [mount.point for mount in mounts(Path("/proc/self/mountinfo").read_text()) if mount.version == 2]
    return next((point for point in found if os.access(point / "cgroup.procs", os.W_OK)), None)


def lack() -> str:
    point = unified()
    if os.geteuid() or point is None:
        return "There is no hierarchy of version 2 that this account may change."
    has = (point / "cgroup.controllers").read_text().split()
    return (
        ""
        if STANDS_IN in has and "memory" not in has
        else "Its controllers are tried by tests/integration/test_process_limits.py."
    )


pytestmark = pytest.mark.real_part(lack(), installable=False)


class SecondVersion(Tree):
    """This machine without its hierarchies of version 1."""

    def own(self) -> tuple[str, str]:
        found, own = super().own()
        kept = [line for line in found.splitlines() if " - cgroup " not in line]
        return "\n".join(kept), "".join(line for line in own.splitlines() if line.startswith("0::"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A cgroup that has a controller, as systemd delegates one to a service."""
    root = unified()
    assert root is not None
    name = f"tenuto-test-{os.getpid()}-{tmp_path.name}"
    litter.outside("cgroup", name)
    (root / "cgroup.subtree_control").write_text(f"+{STANDS_IN}")
    (root / name).mkdir()
    try:
        yield root / name
    finally:
        for path in [*sorted((root / name).rglob("*/"), reverse=True), root / name]:
            path.rmdir()
        with contextlib.suppress(OSError):  # another test's cgroup has it
            (root / "cgroup.subtree_control").write_text(f"-{STANDS_IN}")


AGENT = """
import subprocess, sys
from pathlib import Path
from tenuto.workers.agent.runtimes.process.cgroups import Cgroups, NotAllowed, ProcessLimits
place, directory, stranger = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
(place / "cgroup.procs").write_text("0")
with subprocess.Popen(["sleep", "600"]) as child:
    if stranger:
        (place / "cgroup.procs").write_text(stranger)
    found = Cgroups(directory, ProcessLimits(64 << 20))
    try:
        found._enable_all(place, place, "hugetlb", tuple)
        print(Path("/proc/self/cgroup").read_text().splitlines()[-1].rpartition("/")[2])
    except NotAllowed as error:
        print(error)
    path = place / f"{found._name}1-1-1"
    found._note("1-1-1", {path: 2})
    path.mkdir()
    found.add("1-1-1", child.pid)
    print(found.members("1-1-1") == {child.pid})
    print((path / "hugetlb.2MB.max").exists())
    child.kill()
found.remove("1-1-1")
print(path.exists())
"""


def agent(place: Path, directory: Path, stranger: str = "") -> list[str]:
    command = [sys.executable, "-c", AGENT, str(place), str(directory), stranger]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()


def test_an_agent_makes_room_for_a_controller_and_runs_have_cgroups_with_it(place: Path, tmp_path: Path) -> None:
    """The kernel refuses controllers to children of a cgroup that has processes."""
    assert agent(place, tmp_path) == [LEAF, "True", "True", "False"]
    assert (place / "cgroup.subtree_control").read_text().split() == [STANDS_IN]
    assert sorted(path.name for path in place.iterdir() if path.is_dir()) == [LEAF]


def test_processes_of_others_stay_and_are_named(place: Path, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        said, *rest = agent(place, tmp_path, str(stranger.pid))
        assert f"has other processes ({stranger.pid} is one)" in said
        assert rest == ["True", "False", "False"], "runs are kept together there, without the controller"
        stranger.kill()


def test_a_hierarchy_without_the_controllers_is_told(tmp_path: Path) -> None:
    name = f"tenuto-test-{os.getpid()}-none"
    litter.outside("cgroup", name)
    found = Cgroups(tmp_path, ProcessLimits(LIMITS.memory_bytes_per_slot, LIMITS.cpus_per_slot, name), SecondVersion())
    try:
        found.open(tuple)
        assert found.problem.startswith("no limit of memory and processors, because the cgroup ")
        assert "was not given the controller for it" in found.problem
        assert not found.make("1-1-1", 1)
    finally:
        root = unified()
        assert root is not None
        (root / name).rmdir()
