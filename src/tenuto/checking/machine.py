"""Judgments of a machine: pure functions from facts to findings."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.checking.findings import MachineFinding
from tenuto.embedded.files import DISK_FREE_BYTES_MIN

_MIB, _GIB = 1 << 20, 1 << 30
DISK_BYTES_WISHED = 10 * _GIB
"""Free disk below which a search with checkpoints of some hundred megabytes fills it within a day."""
SHARED_MEMORY_BYTES_WISHED = 1 * _GIB
"""Room in /dev/shm that loader processes need for their batches; a container has 64 MiB unless told otherwise."""
OPEN_FILES_MIN = 1_024
"""Open files that one process of the cluster may have at least: below this the gateway refuses connections early."""
FSYNC_SECONDS_MAX = 0.05
"""Longest time for a small write to reach the disk before it is told: each decision waits for one such write."""
MEMORY_BYTES_WISHED = 2 * _GIB
"""Memory of a whole small cluster and one trial of a framework."""
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "beegfs", "gpfs", "fuse.sshfs", "9p", "ceph", "afs"}
)


@dataclass(frozen=True)
class MachineFacts:
    """Measured facts of a machine. None: not readable, or absent here."""

    python: str = ""
    system: str = ""
    cores: int = 0
    """Cores that this process may use."""
    memory_bytes: int = 0
    """Memory of the machine; limits of a container are not seen."""
    data_directory: str = ""
    directory_error: str = ""
    """Sentence if nothing can be written to the data directory."""
    free_bytes: int = 0
    file_system: str = ""
    fsync_seconds: float | None = None
    """Median time of a small write that reaches the disk."""
    shared_memory_bytes: int | None = None
    open_files_max: int | None = None
    clock_synchronized: bool | None = None
    port: int = 0
    port_kept: bool = False
    """The cluster of the data directory had this port before, and takes no other."""
    port_taken: bool = False
    own_cluster: bool = False
    """A cluster of the data directory is up, and may be what has the port."""
    root: bool = False


def judged(facts: MachineFacts) -> list[MachineFinding]:
    """One finding for each part of the machine."""
    return [
        MachineFinding("python", "ok", f"{facts.python} on {facts.system}"),
        _processors(facts),
        *_disk(facts),
        *_shared_memory(facts),
        *_open_files(facts),
        *_clock(facts),
        _port(facts),
        _rights(facts),
    ]


def _processors(facts: MachineFacts) -> MachineFinding:
    found = f"{_count(facts.cores, 'core')}, {_size(facts.memory_bytes)} of memory"
    if facts.memory_bytes < MEMORY_BYTES_WISHED:
        advice = f"A small cluster and one trial need {_size(MEMORY_BYTES_WISHED)}: processes may be ended for want of memory."
        return MachineFinding("processors", "note", found, advice)
    return MachineFinding("processors", "ok", found)


def _disk(facts: MachineFacts) -> list[MachineFinding]:
    if facts.directory_error:
        return [MachineFinding("disk", "PROBLEM", facts.directory_error, "Name another directory with --data-dir.")]
    found = f"{_size(facts.free_bytes)} free in {facts.data_directory}" + (f" ({facts.file_system})" if facts.file_system else "")
    findings = []
    if facts.free_bytes < DISK_FREE_BYTES_MIN:
        advice = f"A new cluster needs {_size(DISK_FREE_BYTES_MIN)}: make room, or name another directory with --data-dir."
        findings.append(MachineFinding("disk", "PROBLEM", found, advice))
    elif facts.file_system in NETWORK_FILE_SYSTEMS:
        advice = "A database on a network file system may be slow, or lose its locks: name a local directory with --data-dir."
        findings.append(MachineFinding("disk", "note", found, advice))
    elif facts.free_bytes < DISK_BYTES_WISHED:
        findings.append(
            MachineFinding("disk", "note", found, "Checkpoints fill this soon: `checkpoint_policy` says which are kept.")
        )
    else:
        findings.append(MachineFinding("disk", "ok", found))
    if facts.fsync_seconds is not None:
        took = f"{facts.fsync_seconds * 1e3:.1f} ms until a small write is on the disk"
        slow = facts.fsync_seconds > FSYNC_SECONDS_MAX
        advice = "Each decision waits for one such write: a local disk makes searches faster." if slow else ""
        findings.append(MachineFinding("disk speed", "note" if slow else "ok", took, advice))
    return findings


def _shared_memory(facts: MachineFacts) -> list[MachineFinding]:
    if facts.shared_memory_bytes is None:
        return []
    found = f"{_size(facts.shared_memory_bytes)} in /dev/shm"
    if facts.shared_memory_bytes < SHARED_MEMORY_BYTES_WISHED:
        advice = "Loaders with worker processes may fail with a bus error: in a container, set --shm-size=8g or more."
        return [MachineFinding("shared memory", "note", found, advice)]
    return [MachineFinding("shared memory", "ok", found)]


def _open_files(facts: MachineFacts) -> list[MachineFinding]:
    if facts.open_files_max is None:
        return []
    found = f"{facts.open_files_max:,} by one process"
    if facts.open_files_max < OPEN_FILES_MIN:
        return [
            MachineFinding(
                "open files", "note", found, "Loaders and connections need more: `ulimit -n 65536` before `tenuto up`."
            )
        ]
    return [MachineFinding("open files", "ok", found)]


def _clock(facts: MachineFacts) -> list[MachineFinding]:
    if facts.clock_synchronized is None:
        return []
    if facts.clock_synchronized:
        return [MachineFinding("clock", "ok", "kept right by the system")]
    advice = (
        "Times of machines that share a cluster may differ, and joining by TLS may fail: start chrony, ntpd or "
        "systemd-timesyncd, unless a host keeps the time of this machine."
    )
    return [MachineFinding("clock", "note", "not known to be kept right", advice)]


def _port(facts: MachineFacts) -> MachineFinding:
    if not facts.port_taken:
        return MachineFinding("port", "ok", f"{facts.port} is free")
    if facts.own_cluster:
        return MachineFinding("port", "ok", f"{facts.port} belongs to the cluster that is up")
    if facts.port_kept:
        advice = "`tenuto up` would refuse to start: end the program that has the port, or name another with --port."
        return MachineFinding("port", "PROBLEM", f"{facts.port}, which the cluster had before, is taken", advice)
    advice = "`tenuto up` takes another one, or the one that --port names."
    return MachineFinding("port", "note", f"{facts.port} is taken", advice)


def _rights(facts: MachineFacts) -> MachineFinding:
    if facts.root:
        return MachineFinding("rights", "ok", "root: training code gets an account of its own where one can use this Python")
    return MachineFinding("rights", "ok", "an ordinary user: training code runs as the same account")


@dataclass(frozen=True)
class TorchDevice:
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    wrong: str = ""
    """Sentence if a small computation failed, or gave another result than the CPU."""


@dataclass(frozen=True)
class TorchFacts:
    """Answers of PyTorch about itself and the devices, given in a process of its own."""

    error: str = ""
    """Sentence why it cannot be used. Empty: it can."""
    missing: bool = False
    """True if PyTorch is not installed."""
    version: str = ""
    cuda: str = ""
    """CUDA version that it was built for; empty: for CPUs alone."""
    cuda_available: bool = False
    cuda_error: str = ""
    architectures: tuple[str, ...] = ()
    """Device architectures that it has code for, such as sm_90."""
    devices: tuple[TorchDevice, ...] = ()


@dataclass(frozen=True)
class DriverFacts:
    """Answers of NVIDIA's driver."""

    error: str = ""
    """Sentence if there is a driver that does not answer. Empty: it does, or there is none."""
    version: str = ""
    """Version of the driver; empty: there is none."""
    cuda: tuple[int, int] | None = None
    """Newest CUDA version that the driver serves."""
    devices: tuple[str, ...] = ()
    """Names of its devices."""


def judged_devices(torch: TorchFacts, driver: DriverFacts) -> list[MachineFinding]:
    """Findings about PyTorch, the driver, whether they fit, and each device."""
    findings = [_driver(driver)]
    if torch.missing:
        advice = "Install it for the PyTorch Trial API: `pip install 'tenuto[torch]'`. Training was not tried without it."
        return [*findings, MachineFinding("torch", "note", "not installed", advice)]
    if torch.error:
        return [
            *findings,
            MachineFinding("torch", "PROBLEM", torch.error, "Install PyTorch again: https://pytorch.org/get-started."),
        ]
    findings.append(_torch(torch, driver))
    if driver.devices:  # those of another maker are no slots
        findings += [_device(number, item, torch.architectures) for number, item in enumerate(torch.devices)]
    return findings


def _driver(driver: DriverFacts) -> MachineFinding:
    if driver.error:
        return MachineFinding("driver", "PROBLEM", driver.error, "`nvidia-smi` shows more; a restart loads the driver again.")
    if not driver.version:
        return MachineFinding("driver", "ok", "no GPU of NVIDIA: slots are CPU cores")
    serves = f", serves CUDA up to {driver.cuda[0]}.{driver.cuda[1]}" if driver.cuda else ""
    return MachineFinding("driver", "ok", f"{driver.version}{serves}; {_listed(driver.devices)}")


def _torch(torch: TorchFacts, driver: DriverFacts) -> MachineFinding:
    built = f"{torch.version}, built for CUDA {torch.cuda}" if torch.cuda else f"{torch.version}, built for CPUs"
    if not driver.devices:
        return MachineFinding("torch", "ok", built)
    if not torch.cuda:
        advice = "This build does not see the GPUs: install one for CUDA, https://pytorch.org/get-started."
        return MachineFinding("torch", "PROBLEM", built, advice)
    needed = _cuda_version(torch.cuda)
    # A driver serves all minor versions of the major version that it knows, and older ones (CUDA's minor version compatibility).
    if needed and driver.cuda and needed[0] > driver.cuda[0]:
        advice = f"The driver is too old for it: install a newer driver, or a build of PyTorch for CUDA {driver.cuda[0]}."
        return MachineFinding("torch", "PROBLEM", built, advice)
    if not torch.cuda_available:
        said = f": {torch.cuda_error}" if torch.cuda_error else ""
        return MachineFinding(
            "torch", "PROBLEM", f"{built}, finds no GPU{said}", "Look at CUDA_VISIBLE_DEVICES and `nvidia-smi`."
        )
    return MachineFinding("torch", "ok", built)


def _device(number: int, device: TorchDevice, architectures: tuple[str, ...]) -> MachineFinding:
    subject = f"GPU {number}"
    found = f"{device.name}, {_size(device.memory_bytes)}, compute capability {device.capability[0]}.{device.capability[1]}"
    if device.wrong:
        return MachineFinding(subject, "PROBLEM", f"{found}: {device.wrong}", "`tenuto slot disable` takes it out of use.")
    if architectures and not has_code(device.capability, architectures):
        advice = f"This build of PyTorch has code for {', '.join(architectures)} alone: install one that knows this GPU."
        return MachineFinding(subject, "PROBLEM", found, advice)
    return MachineFinding(subject, "ok", found)


def has_code(capability: tuple[int, int], architectures: tuple[str, ...]) -> bool:
    """True if one of the architectures serves a device: compiled code (sm_XY) the same major and this or a later minor version,
    portable code (compute_XY) every later one."""
    for name in architectures:
        kind, _, digits = name.partition("_")
        digits = digits.rstrip("af")
        if not digits.isdigit() or len(digits) < 2:
            continue
        major, minor = int(digits[:-1]), int(digits[-1])
        if kind == "sm" and major == capability[0] and minor <= capability[1]:
            return True
        if kind == "compute" and (major, minor) <= capability:
            return True
    return False


def _cuda_version(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _listed(names: tuple[str, ...]) -> str:
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    return ", ".join(f"{count} x {name}" for name, count in counts.items()) or "no device"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{size_bytes / _MIB:.0f} MiB"
