"""The machine of a real Kubernetes of the tests' own: containerd, a bridge for pods, the kubelet and the proxy; and images that
were in no registry. They weigh nothing: each container has directories of this machine, its Python among them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.docker_daemon import python_directories

if TYPE_CHECKING:
    from tests.support.kubernetes_real import RealKubernetes

NAME = "machine-1"
SOCKET = "containerd.sock"
PAUSE = "tenuto.test/pause:1"
ROOT = Path(__file__).parents[2]
CONTROLLERS = Path("/sys/fs/cgroup")
CLEAN_SECONDS_MAX = 10.0


def prepare(directory: Path, address: str, pods: str, pause: Path) -> None:
    """Files of its daemons."""
    for name in ("cni", "kubelet", "containerd", "images"):
        (directory / name).mkdir(exist_ok=True)
    own = directory / "containerd"
    (directory / "containerd.toml").write_text(f"""
version = 2
root = "{own}/root"
state = "{own}/state"
[grpc]
  address = "{directory / SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "{directory}/containers.json"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{directory}/cni"
""")
    (directory / "containers.json").write_text(json.dumps(_containers()))
    bridge = {
        "cniVersion": "0.4.0", "name": "pods",
        "plugins": [
            {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipMasq": True, "hairpinMode": True,
             "ipam": {"type": "host-local", "dataDir": f"{directory}/addresses", "ranges": [[{"subnet": pods}]],
                      "routes": [{"dst": "0.0.0.0/0"}]}},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }  # fmt: skip
    (directory / "cni" / "10-pods.conflist").write_text(json.dumps(bridge))
    (directory / "resolv.conf").write_text(f"nameserver {address}\n")
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{directory.name}", "failSwapOn": False, "oomScoreAdj": 0,
        "clusterDNS": [address], "clusterDomain": "cluster.local", "resolvConf": str(directory / "resolv.conf"),
        # The disk of this machine is shared with others.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100, "nodeStatusUpdateFrequency": "2s", "syncFrequency": "5s",
        "volumePluginDir": f"{directory}/kubelet/plugins",
    }  # fmt: skip
    (directory / "kubelet.yaml").write_text(yaml.safe_dump(kubelet))
    for controller in CONTROLLERS.iterdir():
        if (controller / "cgroup.procs").exists() and not controller.is_symlink():
            (controller / directory.name).mkdir(exist_ok=True)
    _archive(directory / "images" / "pause.tar", PAUSE, {"pause": (pause.read_bytes(), 0o755)}, ["/pause"], "")


def _containers() -> dict[str, Any]:
    """What each container has: the system of this machine and its Python, besides what its pod says."""
    done = subprocess.run(["ctr", "oci", "spec"], capture_output=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    places = sorted({"/usr", str(ROOT), *python_directories()})
    found["mounts"] += [{"destination": place, "type": "bind", "source": place, "options": ["rbind", "ro"]} for place in places]
    return found


def start(cluster: RealKubernetes) -> None:
    """Until the machine is ready."""
    own = cluster.directory
    cluster.run("containerd", "containerd", "--config", own / "containerd.toml")
    cluster.wait_for("containerd", lambda: (own / SOCKET).exists())
    import_image(cluster, own / "images" / "pause.tar")
    start_kubelet(cluster)
    kubeconfig = own / "admin.kubeconfig"
    cluster.run(
        "kube-proxy", "kube-proxy", f"--kubeconfig={kubeconfig}", "--proxy-mode=iptables", "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0", f"--hostname-override={NAME}",
    )  # fmt: skip
    token = own / "names.token"
    token.touch(0o600)
    token.write_text(cluster.tokens["admin"])
    names = Path(__file__).with_name("kubernetes_names.py")
    cluster.run("names", sys.executable, names, cluster.url, cluster.authority, token, cluster.address)
    cluster.wait_for("a machine that is ready", lambda: is_ready(cluster))


def start_kubelet(cluster: RealKubernetes) -> None:
    own = cluster.directory
    cluster.run(
        "kubelet", "kubelet", f"--config={own / 'kubelet.yaml'}", f"--kubeconfig={own / 'admin.kubeconfig'}",
        "--container-runtime=remote", f"--container-runtime-endpoint=unix://{own / SOCKET}", f"--root-dir={own / 'kubelet'}",
        f"--cert-dir={own / 'kubelet' / 'pki'}", f"--hostname-override={NAME}", f"--node-ip={cluster.address}",
    )  # fmt: skip


def is_ready(cluster: RealKubernetes) -> bool:
    node = cluster.ask("GET", f"/api/v1/nodes/{NAME}")
    return any((item["type"], item["status"]) == ("Ready", "True") for item in node["status"]["conditions"])


def ctr(cluster: RealKubernetes, *words: str | Path) -> str:
    command = ["ctr", "--address", str(cluster.directory / SOCKET), "--namespace", "k8s.io", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ctr {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def import_image(cluster: RealKubernetes, archive: Path) -> None:
    ctr(cluster, "images", "import", archive)


def make_image(cluster: RealKubernetes, name: str, variables: list[str], python: str = "", entry: tuple[str, ...] = ()) -> None:
    """An image with directories to mount at, some files of /etc, and these variables. `python`: what `python` is; that of the
    tests if empty. `entry`: what it runs if its pod names no command."""
    files: dict[str, tuple[bytes, int]] = {}
    for item in ("passwd", "group", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "hosts"):
        if (file := Path("/etc", item)).is_file():
            files[f"etc/{item}"] = (file.read_bytes(), 0o644)
    if python:
        files["opt/python"] = (f'#!/bin/sh\nexec {python} "$@"\n'.encode(), 0o755)
    archive = cluster.directory / "images" / f"{hashlib.sha256(name.encode()).hexdigest()[:8]}.tar"
    first = "/opt" if python else str(Path(sys.executable).parent)
    _archive(archive, name, files, [*entry], f"{first}:/usr/bin:/bin", variables)
    import_image(cluster, archive)


def claim(cluster: RealKubernetes, namespace: str, path: Path) -> str:
    """A claim on a directory of this machine, as the setting `volumes` of a pool names it."""
    name = f"{namespace}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        **spec, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(path)}, "persistentVolumeReclaimPolicy": "Retain",
    }  # fmt: skip
    wanted = {**spec, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": namespace}
    cluster.apply(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": wanted},
    )
    return f"{name}:{path}"


def local_volume(cluster: RealKubernetes, path: Path, mode: str, size: str) -> None:
    """For any claim of that mode and size. Unlike that of `claim`, its directory gets the group of its pods."""
    path.mkdir()
    name = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}
    spec = {
        "accessModes": [mode], "storageClassName": "", "capacity": {"storage": size}, "local": {"path": str(path)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [name]}]}},
    }  # fmt: skip
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": path.name}, "spec": spec})


def clean(directory: Path) -> None:
    """Groups of processes, all of which have ended."""
    deadline = time.monotonic() + CLEAN_SECONDS_MAX
    for top in CONTROLLERS.glob(f"*/{directory.name}"):
        for path in sorted([top, *(Path(found) for found, _, _ in os.walk(top))], reverse=True):
            while path.exists() and time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    path.rmdir()
                    break
                time.sleep(0.05)


def _archive(
    path: Path,
    name: str,
    files: dict[str, tuple[bytes, int]],
    command: list[str],
    search: str,
    variables: list[str] | None = None,
) -> None:
    """An archive as `docker save` makes them, with one layer."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for directory in ("usr", "etc", "proc", "sys", "dev", "tmp", "run", "opt", "var", "var/lib"):
            item = tarfile.TarInfo(directory)
            item.type, item.mode = tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755
            tar.addfile(item)
        for link in ("lib", "lib64", "bin", "sbin"):
            if Path(f"/{link}").is_symlink():
                item = tarfile.TarInfo(link)
                item.type, item.linkname = tarfile.SYMTYPE, os.readlink(f"/{link}")
                tar.addfile(item)
        for file, (content, mode) in files.items():
            item = tarfile.TarInfo(file)
            item.size, item.mode = len(content), mode
            tar.addfile(item, io.BytesIO(content))
    data = layer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    config = {
        "architecture": "amd64", "os": "linux", "config": {"Env": [f"PATH={search}", *(variables or [])], "Entrypoint": command},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }  # fmt: skip
    packed = json.dumps(config).encode()
    key = f"{hashlib.sha256(packed).hexdigest()}.json"
    manifest = [{"Config": key, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(path, mode="w") as tar:
        for file, content in ((key, packed), (f"{digest}/layer.tar", data), ("manifest.json", json.dumps(manifest).encode())):
            item = tarfile.TarInfo(file)
            item.size = len(content)
            tar.addfile(item, io.BytesIO(content))
