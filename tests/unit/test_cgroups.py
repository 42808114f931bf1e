"""Cgroups of runs: where they are, and what version 2 asks for. The tree of version 2 here has the kernel's rules as its
documentation (admin-guide/cgroup-v2) tells them."""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePosixPath

import pytest

from tenuto.workers.agent.runtimes.process.cgroup_places import (
    CgroupMount,
    MemoryEnd,
    limits,
    memory_end,
    mount_of,
    mounts,
    own_paths,
)
from tenuto.workers.agent.runtimes.process.cgroups import LEAF, Cgroups, ProcessLimits, Tree

UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
LEGACY = (
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
HYBRID = LEGACY + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
ROOT = Path("/sys/fs/cgroup")
MEMORY = 1 << 30


class Unified(Tree):
    """A tree of version 2 in memory, in which this process is in `own`."""

    def __init__(self, own: str, *, kernel: str = "memory cpu io", readonly: bool = False) -> None:
        self.groups: dict[Path, dict[str, str]] = {ROOT: {"cgroup.subtree_control": ""}}
        self.pids: dict[Path, set[int]] = {ROOT: set()}
        self.kernel, self.mine, self.readonly = kernel, own, readonly
        for path in [*reversed(self.path(own).parents), self.path(own)]:
            if path != ROOT and path.is_relative_to(ROOT):
                self._new(path)
        self.pids[self.path(own)].add(os.getpid())

    def path(self, name: str) -> Path:
        return ROOT / name.lstrip("/")

    def own(self) -> tuple[str, str]:
        return UNIFIED, f"0::{self.mine}\n"

    def _new(self, path: Path) -> None:
        self.groups[path] = {"cgroup.subtree_control": "", "cgroup.type": "domain\n"}
        self.pids[path] = set()

    def make(self, path: Path) -> None:
        if path in self.groups:
            return
        if self.readonly:
            raise OSError(errno.EROFS, "Read-only file system")
        assert path.parent in self.groups
        self._new(path)

    def exists(self, path: Path) -> bool:
        return path in self.groups or path.name in self._files(path.parent)

    def _files(self, group: Path) -> set[str]:
        if group not in self.groups:
            return set()
        given = self.kernel if group == ROOT else self.groups[group.parent]["cgroup.subtree_control"]
        more = {"memory": {"memory.max", "memory.swap.max", "memory.events"}, "cpu": {"cpu.max"}}
        found = {"cgroup.procs", "cgroup.controllers", "cgroup.subtree_control"}
        if group != ROOT:
            found |= {"cgroup.type"} | {file for name, files in more.items() if name in given.split() for file in files}
        return found

    def read(self, path: Path) -> str:
        if path.name not in self._files(path.parent):
            raise FileNotFoundError(errno.ENOENT, str(path))
        if path.name == "cgroup.procs":
            return "".join(f"{pid}\n" for pid in sorted(self.pids[path.parent]))
        if path.name == "cgroup.controllers":
            return self.kernel if path.parent == ROOT else self.groups[path.parent.parent]["cgroup.subtree_control"]
        return self.groups[path.parent].get(path.name, "")

    def write(self, path: Path, value: str) -> None:
        group = path.parent
        if path.name not in self._files(group):
            raise FileNotFoundError(errno.ENOENT, str(path))
        if self.readonly:
            raise OSError(errno.EROFS, "Read-only file system")
        if path.name == "cgroup.procs":
            if self.groups[group]["cgroup.subtree_control"].strip() and group != ROOT:
                raise OSError(errno.EBUSY, "Device or resource busy")
            for pids in self.pids.values():
                pids.discard(int(value))
            self.pids[group].add(int(value))
        elif path.name == "cgroup.subtree_control":
            if self.pids[group] and group != ROOT:
                raise OSError(errno.EBUSY, "Device or resource busy")
            assert value.startswith("+")
            assert value[1:] in self.read(group / "cgroup.controllers").split()
            self.groups[group][path.name] = f"{self.groups[group][path.name]} {value[1:]}".strip()
        else:
            self.groups[group][path.name] = value

    def below(self, path: Path) -> list[Path]:
        return [group for group in self.groups if group.parent == path and group != path]

    def remove(self, path: Path) -> None:
        if path not in self.groups:
            raise FileNotFoundError(errno.ENOENT, str(path))
        if self.below(path) or self.pids[path] & {os.getpid()}:
            raise OSError(errno.EBUSY, "Device or resource busy")
        del self.groups[path], self.pids[path]


def opened(tree: Unified, directory: Path, parent: str = "", cpus: float = 1.5) -> Cgroups:
    found = Cgroups(directory, ProcessLimits(MEMORY, cpus, parent), tree)
    found.open(tuple)
    return found


def test_the_hierarchy_of_a_controller_is_found_in_every_layout() -> None:
    hybrid = mounts(HYBRID)
    assert mount_of("memory", hybrid) == CgroupMount(1, PurePosixPath("/"), ROOT / "memory", frozenset({"rw", "memory"}))
    assert mount_of("cpu", hybrid) == CgroupMount(
        1, PurePosixPath("/"), ROOT / "cpu,cpuacct", frozenset({"rw", "cpu", "cpuacct"})
    )
    assert mount_of("memory", mounts(UNIFIED)) == CgroupMount(2, PurePosixPath("/"), ROOT, frozenset())
    assert mount_of("memory", mounts(LEGACY.splitlines()[0])) is None
    assert mount_of("memory", mounts("")) is None
    own = own_paths("5:cpu,cpuacct:/a\n4:memory:/b:c/d\n1:name=systemd:/s\n0::/user.slice\nnonsense\n")
    assert (own["cpu"], own["memory"], own[""]) == ("/a", "/b:c/d", "/user.slice")


def test_a_mount_may_show_a_part_of_its_hierarchy() -> None:
    [mount] = mounts(r"35 31 0:32 /docker/ab\040c /sys/fs/cgroup/mem\040ory ro - cgroup cgroup rw,memory")
    assert mount.directory("/docker/ab c/run") == Path("/sys/fs/cgroup/mem ory/run")
    assert mount.directory("/docker/other") is None
    assert mount.directory("/") is None
    assert mounts(UNIFIED)[0].directory("/../..") is None, "another namespace's"


def test_limits_are_written_as_each_version_has_them() -> None:
    assert limits("cpu", 2, 1.5) == [("cpu.max", "150000 100000", True)]
    assert limits("cpu", 1, 0.001)[1] == ("cpu.cfs_quota_us", "1000", True), "the least that the kernel takes"
    assert limits("memory", 2, MEMORY) == [("memory.max", str(MEMORY), True), ("memory.swap.max", "0", False)]
    assert [name for name, _, needed in limits("memory", 1, MEMORY) if needed] == ["memory.limit_in_bytes"]


def test_the_end_of_memory_is_told_from_other_ends_and_from_that_of_the_node() -> None:
    def end(version: int, **files: str) -> MemoryEnd:
        return memory_end(version, {name.replace("__", "."): text for name, text in files.items()})  # type: ignore[arg-type]

    events = "low 0\nhigh 0\nmax 9\noom {}\noom_kill {}\noom_group_kill 0\n"
    assert end(2, memory__events=events.format(1, 1), memory__max="4096\n") == MemoryEnd(True, 4096)
    assert end(2, memory__events=events.format(0, 2), memory__max="4096\n") == MemoryEnd(True, 0)
    assert end(2, memory__events=events.format(0, 2), memory__max="max\n") == MemoryEnd(True, 0)
    assert end(2, memory__events=events.format(5, 0), memory__max="4096\n") == MemoryEnd(False, 4096)
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
    full = {"memory__limit_in_bytes": "4096\n", "memory__max_usage_in_bytes": "4000\n"}
    assert end(1, memory__oom_control=control.format(1), **full) == MemoryEnd(True, 4096)
    assert end(1, memory__oom_control=control.format(0), **full).killed is False
    assert end(1, memory__oom_control="oom_kill_disable 0\n", **full).killed is False, "a kernel before 4.13 does not count"
    assert (
        end(1, memory__oom_control=control.format(1), memory__limit_in_bytes="4096", memory__max_usage_in_bytes="9").limit_bytes
        == 0
    )
    assert end(1).killed is False


def test_an_agent_in_a_delegated_cgroup_makes_room_for_controllers(tmp_path: Path) -> None:
    """As systemd delegates the cgroup of a service: the agent is alone in it, and moves into a child first."""
    tree = Unified("/system.slice/agent.service")
    own = tree.path("/system.slice/agent.service")
    for path in (ROOT, own.parent):
        tree.groups[path]["cgroup.subtree_control"] = "memory cpu"
    found = opened(tree, tmp_path)
    assert found.problem == ""
    assert tree.pids[own / LEAF] == {os.getpid()}
    assert tree.below(own) == [own / LEAF], "what was tried is gone"
    assert found.make("1-2-3", 2)
    [group] = [path for path in tree.below(own) if path.name != LEAF]
    assert (tree.groups[group]["memory.max"], tree.groups[group]["cpu.max"]) == (str(2 * MEMORY), "300000 100000")
    assert tree.groups[group]["memory.swap.max"] == "0"
    found.add("1-2-3", 4_000_000)
    assert found.members("1-2-3") == {4_000_000}
    tree.mine = f"/system.slice/agent.service/{LEAF}"
    again = opened(tree, tmp_path)
    assert (again.problem, tree.pids[own / LEAF]) == ("", {os.getpid()}), "the next one is in that child already"
    tree.pids[group].clear()
    again.sweep(())
    assert tree.below(own) == [own / LEAF]


def test_processes_of_others_are_left_where_they_are(tmp_path: Path) -> None:
    tree = Unified("/user.slice/session-3.scope")
    own = tree.path(tree.mine)
    for path in (ROOT, own.parent):
        tree.groups[path]["cgroup.subtree_control"] = "memory cpu"
    tree.pids[own].add(1)
    found = opened(tree, tmp_path)
    assert "has other processes (1 is one)" in found.problem
    assert "Delegate=yes" in found.problem
    assert tree.pids[own] == {1, os.getpid()}
    assert found.make("1-1-1", 1) is False, "runs go on without"
    assert tree.below(own) == []


def test_a_controller_that_the_cgroup_was_not_given_is_named(tmp_path: Path) -> None:
    tree = Unified("/a/b")
    tree.groups[ROOT]["cgroup.subtree_control"] = tree.groups[ROOT / "a"]["cgroup.subtree_control"] = "cpu"
    found = opened(tree, tmp_path)
    assert found.problem.startswith(
        "no limit of memory, because the cgroup /sys/fs/cgroup/a/b was not given the controller for it"
    )
    assert "processors" not in found.problem
    assert found.make("1-1-1", 1), "what can be limited is"
    [group] = [path for path in tree.below(ROOT / "a" / "b") if path.name != LEAF]
    assert "cpu.max" in tree.groups[group]


def test_the_operators_cgroup_is_made_with_the_controllers_on_the_way_to_it(tmp_path: Path) -> None:
    tree = Unified("/user.slice")
    found = opened(tree, tmp_path, "tenuto/runs/")
    assert found.problem == ""
    assert found.make("1-1-1", 1)
    for path in (ROOT, ROOT / "tenuto", ROOT / "tenuto/runs"):
        assert tree.groups[path]["cgroup.subtree_control"] == "memory cpu"
    assert tree.pids[tree.path("/user.slice")] == {os.getpid()}, "the agent stays where it is"


def test_what_the_kernel_refuses_is_said_once_for_each_limit(tmp_path: Path) -> None:
    tree = Unified("/pod", readonly=True)
    tree.groups[ROOT]["cgroup.subtree_control"] = "memory cpu"
    found = opened(tree, tmp_path)
    assert found.problem.startswith("no limit of memory and processors, because the agent cannot limit")
    assert opened(Unified("/", kernel="io"), tmp_path).problem.count("was not given the controller for it") == 1
    assert opened(Unified("/", kernel="memory"), tmp_path, cpus=0).problem == "", "only what is asked for"


@pytest.mark.parametrize("note", ["{", '{"/sys/fs/cgroup/other": 2}'])
def test_a_damaged_note_touches_no_cgroup_of_others(tmp_path: Path, note: str) -> None:
    tree = Unified("/")
    tree.make(ROOT / "other")
    found = opened(tree, tmp_path)
    assert found.make("1-1-1", 1)
    (tmp_path / "cgroups" / "1-1-1.json").write_text(note)
    found.remove("1-1-1")
    found.sweep(())
    assert tree.below(ROOT) == [ROOT / "other"]
