"""A real Kubernetes of the tests' own: etcd, the API server, controller manager, scheduler and proxy, and one machine with
containerd and the kubelet. `make kubernetes-real` builds it.

All of it runs in namespaces of its own (network, processes, mounts), so that nothing is left of it when its first process ends:
no container, no mount, no rule of a firewall.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import kubernetes_machine as machine
from tests.support import litter
from tests.support.namespaces import add_namespace, ip

PLACE = "TEST_KUBERNETES"
"""Variable with the directory that deploy/build-kubernetes.sh has built in."""
START_SECONDS_MAX = 180.0
PREFIX = "tenuto-kubernetes-"
"""Of its directories, and of its groups of processes."""
END_SECONDS_MAX = 30.0
OWN_PLACES = ("/var/log", "/var/lib/cni", "/run/containerd", "/run/netns")
"""Where daemons write whatever they are told."""
GUIDE = Path(__file__).parents[2] / "docs" / "kubernetes.md"
SERVICES, PODS = "10.96.0.0/16", "10.244.0.0/16"
Document = dict[str, Any]


def programs() -> Path | None:
    """Directory with the newest that was built."""
    place = os.environ.get(PLACE)
    found = sorted(Path(place).expanduser().glob("kubernetes-*/bin/kubelet")) if place else []
    return found[-1].parent if found else None


def lack() -> str:
    """Why there is none here; empty if there is one."""
    if programs() is None:
        return "There is no real Kubernetes: make kubernetes-real."
    if os.geteuid() != 0:
        return "Only root may run a real Kubernetes."
    needed = ("etcd", "containerd", "runc", "openssl", "ip", "iptables", "nsenter", "unshare")
    missing = [name for name in needed if shutil.which(name) is None]
    return f"A real Kubernetes needs {', '.join(missing)}: make kubernetes-real." if missing else ""


MARKS = (pytest.mark.real_part(lack(), installable=False), pytest.mark.kubernetes_real)
"""Of tests that need one."""


@dataclass
class RealKubernetes:
    """Started by `real_kubernetes`."""

    directory: Path
    programs: Path
    here: str
    """Address of this machine, as pods reach it."""
    address: str
    """Address of the API server."""
    namespace: str
    init: int = 0
    """Process that the others live and die with."""
    tokens: dict[str, str] = field(default_factory=dict)
    """By user."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://{self.address}:6443"

    @property
    def authority(self) -> Path:
        return self.directory / "certificates" / "apiserver.crt"

    def kubeconfig(self, path: Path, user: str = "admin", namespace: str = "default") -> Path:
        """Of one of `tokens`. Others may not read it."""
        data = base64.b64encode(self.authority.read_bytes()).decode()
        document = {
            "apiVersion": "v1", "kind": "Config", "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": {"server": self.url, "certificate-authority-data": data}}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user, "namespace": namespace}}],
        }  # fmt: skip
        path.touch(0o600)
        path.write_text(yaml.safe_dump(document))
        return path

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """As its administrator. Raises urllib.error.HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.tokens['admin']}", "Content-Type": kind}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        context = ssl.create_default_context(cafile=self.authority)
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return json.loads(answer.read())

    def apply(self, *documents: Document) -> None:
        """Creates them. Kinds have the plural with `s`, or `ies`."""
        for document in documents:
            version, kind = document["apiVersion"], document["kind"].lower()
            plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}es" if kind.endswith("ss") else f"{kind}s"
            namespace = document["metadata"].get("namespace")
            within = f"/namespaces/{namespace}" if namespace else ""
            self.ask("POST", f"/{'api' if version == 'v1' else 'apis'}/{version}{within}/{plural}", document)

    def make_namespace(self, name: str, *, granted: bool = True) -> None:
        """`granted`: the user `launcher` has there the rights that docs/kubernetes.md names, and no others."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        if granted:
            self._grant(name)
        secrets = f"/api/v1/namespaces/{name}/secrets"
        self.wait_for("the token of a namespace's account", lambda: self.ask("GET", secrets)["items"])

    def empty(self, namespace: str) -> None:
        """Ends all pods there, which would leave no processors for those of other tests."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        self.ask("DELETE", path, {"gracePeriodSeconds": 0})
        self.wait_for(f"the end of all pods of {namespace}", lambda: not self.ask("GET", path)["items"])

    def _grant(self, name: str) -> None:
        text = re.search(r"```yaml\n(apiVersion: rbac.*?)```", GUIDE.read_text(), re.S)
        assert text is not None
        role = yaml.safe_load(text[1])
        role["metadata"]["namespace"] = name
        group = "rbac.authorization.k8s.io"
        binding = {
            "apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "launcher", "namespace": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": role["metadata"]["name"]},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "launcher"}],
        }  # fmt: skip
        self.apply(role, binding)

    def patch(self, path: str, change: object) -> Any:
        return self.ask("PATCH", path, change, "application/merge-patch+json")

    def run(self, name: str, *command: str | Path, environment: Mapping[str, str] | None = None) -> None:
        """Starts a process of it; what it prints is in the directory `logs`."""
        own = {"PATH": f"{self.programs}:/usr/lib/cni:{os.environ['PATH']}:/usr/sbin:/sbin", "HOME": str(self.directory)}
        enter = ("nsenter", "--target", str(self.init), "--net", "--pid", "--mount")
        with (self.directory / "logs" / name).open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [*enter, *map(str, command)],
                stdout=output,
                stderr=output,
                env={**own, **(environment or {})},
                start_new_session=True,
            )

    def said(self, name: str, characters: int = 2_000) -> str:
        return (self.directory / "logs" / name).read_text(errors="replace")[-characters:]

    def kill(self, name: str) -> None:
        """`nsenter` stays in front of its program, and ends when that has ended."""
        process = self.processes.pop(name)
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        process.wait(END_SECONDS_MAX)

    # Its parts

    def start_store(self) -> None:
        own = self.directory / "etcd"
        self.run("etcd", "etcd", "--data-dir", own, "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380")  # fmt: skip  # noqa: E501

    def start_api(self, *more: str) -> None:
        """Until it answers."""
        key = self.directory / "certificates" / "accounts.key"
        self.run(
            "kube-apiserver", "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--advertise-address={self.address}",
            "--secure-port=6443", f"--cert-dir={key.parent}", f"--token-auth-file={self.directory / 'tokens'}",
            "--authorization-mode=RBAC", "--allow-privileged=true", f"--service-cluster-ip-range={SERVICES}",
            f"--service-account-issuer={self.url}", f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            "--kubelet-preferred-address-types=InternalIP", "--profiling=false", *more,
        )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._ready():
            if self.processes["kube-apiserver"].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"The API server does not start: {self.said('kube-apiserver')}")
            time.sleep(0.1)

    def _ready(self) -> bool:
        try:
            self.ask("GET", "/api/v1/namespaces/default")
            request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.tokens['admin']}"})
            with urllib.request.urlopen(request, timeout=5, context=ssl.create_default_context(cafile=self.authority)) as answer:
                return bool(answer.status == 200)
        except (OSError, ssl.SSLError):  # its certificate is not there yet, it does not listen, or is not ready
            return False

    def restart_api(self) -> None:
        """It forgets all versions before."""
        self.kill("kube-apiserver")
        self.start_api()

    def start_controllers(self) -> None:
        file = self.directory / "admin.kubeconfig"
        key = self.directory / "certificates" / "accounts.key"
        self.run(
            "kube-controller-manager", "kube-controller-manager", f"--kubeconfig={file}", "--leader-elect=false",
            f"--service-account-private-key-file={key}", f"--root-ca-file={self.authority}", "--node-monitor-grace-period=12s",
        )  # fmt: skip
        self.run("kube-scheduler", "kube-scheduler", f"--kubeconfig={file}", "--leader-elect=false")

    def start_machine(self) -> None:
        machine.prepare(self.directory, self.address, PODS, self.programs / "pause")
        machine.start(self)

    def wait_for(self, what: str, seen: Any, seconds: float = START_SECONDS_MAX) -> Any:
        """Result of `seen`, as soon as it is true, and while all of it runs."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, KeyError, IndexError):
                if found := seen():
                    return found
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise RuntimeError(
                    f"Real Kubernetes: {what} does not come to be within {seconds:.0f} s: {self.said(*ended[:1] or ('kubelet',))}"
                )
            time.sleep(0.1)


@contextlib.contextmanager
def real_kubernetes(*, with_machine: bool = True) -> Iterator[RealKubernetes]:
    """One that runs. Ask `lack` first."""
    found = programs()
    assert found is not None
    _sweep()
    mark = os.getpid()
    name, cable, network = f"tenuto-{mark}-kube", f"tenutok{mark}", f"10.{224 + mark // 250 % 20}.{mark % 250}"
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{mark}-"))
    directory.chmod(0o711)
    cluster = RealKubernetes(directory, found, f"{network}.1", f"{network}.2", name)
    first: subprocess.Popen[bytes] | None = None
    try:
        add_namespace(name)
        litter.outside("device", cable)
        litter.outside("cgroup", directory.name)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", f"{network}.1/24", "dev", cable)
        ip("link", "set", cable, "up")
        ip("-n", name, "address", "add", f"{network}.2/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", name, "link", "set", device, "up")
        # The kubelet and the API server look for the machine's address at its default route.
        ip("-n", name, "route", "add", "default", "via", f"{network}.1")
        unshared = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        command = (*unshared, *_own_places(directory, found / "pause"))
        # `ip netns exec` would put another /sys in front of the groups of processes.
        first = subprocess.Popen(["nsenter", f"--net=/run/netns/{name}", *command], start_new_session=True)
        cluster.init = _child_of(first)
        _files(cluster)
        cluster.start_store()
        cluster.start_api()
        cluster.kubeconfig(directory / "admin.kubeconfig")
        cluster.start_controllers()
        if with_machine:
            cluster.start_machine()
        yield cluster
    finally:
        if first is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(cluster.init or first.pid, signal.SIGKILL)  # and with it all that lives in its namespace
            first.kill()
            first.wait()
            for process in cluster.processes.values():
                process.kill()
                process.wait()
        machine.clean(directory)
        _remove(name)
        shutil.rmtree(directory, ignore_errors=True)


def _own_places(directory: Path, first: Path) -> list[str]:
    """The command `first`, with directories of our own where daemons write whatever they are told."""
    commands = []
    for number, place in enumerate(OWN_PLACES):
        (directory / f"own-{number}").mkdir()
        commands.append(f"mkdir -p {place} && mount --bind {directory}/own-{number} {place}")
    return ["sh", "-c", f"{' && '.join(commands)} && exec {first}"]


def _remove(name: str) -> None:
    """A namespace of networks, with the cable to it."""
    with contextlib.suppress(subprocess.CalledProcessError):
        ip("netns", "delete", name)


def _sweep() -> None:
    """What a test process left that was killed. Its processes have ended with it."""
    for file in Path("/run/netns").glob("tenuto-*-kube"):
        if not Path("/proc", file.name.split("-")[1]).exists():
            _remove(file.name)
    for place in (Path(tempfile.gettempdir()), *machine.CONTROLLERS.iterdir()):
        for path in place.glob(f"{PREFIX}*"):
            if not Path("/proc", path.name.split("-")[2]).exists():
                machine.clean(path)
                shutil.rmtree(path, ignore_errors=True)


def _child_of(process: subprocess.Popen[bytes]) -> int:
    """First process of the namespace: `unshare` stays in front of it."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while time.monotonic() < deadline:
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if found and Path(f"/proc/{found[0]}/exe").resolve().name == "pause":
            return int(found[0])
        time.sleep(0.01)
    raise RuntimeError("Namespaces of processes are not allowed here.")


def _files(cluster: RealKubernetes) -> None:
    """Users with their tokens, and the key of service accounts."""
    for name in ("logs", "certificates"):
        (cluster.directory / name).mkdir(mode=0o700)
    rows = []
    for user, group in (("admin", "system:masters"), ("launcher", "")):
        cluster.tokens[user] = secrets.token_hex(16)
        rows.append(f"{cluster.tokens[user]},{user},{user}" + (f',"{group}"' if group else ""))
    tokens = cluster.directory / "tokens"
    tokens.touch(0o600)
    tokens.write_text("\n".join(rows) + "\n")
    key = cluster.directory / "certificates" / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
