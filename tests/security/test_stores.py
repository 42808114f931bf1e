"""Data that checkpoints must not give access to: the services' own credentials, and files that are no checkpoint's."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socketserver
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.config.storage import SHARED_STORE
from tests.support.live_cluster import LiveCluster

CONFIG = """
name: victim
entrypoint: python train.py
max_restarts: 0
searcher: {name: single, metric: loss, smaller_is_better: true, max_length: {batches: 2}}
"""
TRAIN = """
import tenuto

with tenuto.init() as run:
    for operation in run.operations():
        with run.checkpoint.save(operation.steps) as directory:
            (directory / "weights").write_bytes(b"w" * 1000)
        run.report_validation(operation.steps, {"loss": 1.0})
"""
SECRET = b"the administrator's token, or /etc/shadow"
ANSWER_SECONDS_MAX = 60


class Attacker(socketserver.ThreadingTCPServer):
    """Notes every connection."""

    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.asked = 0

    def finish_request(self, request: object, client_address: object) -> None:
        self.asked += 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    directory = Path(tempfile.mkdtemp(prefix="tenuto-security-"))
    directory.chmod(0o711)
    made = LiveCluster(directory / "cluster")
    try:
        with made:
            yield made
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    (directory / "train.py").write_text(TRAIN)
    return directory


def config(directory: Path, *lines: str) -> Path:
    path = directory / "config.yaml"
    path.write_text(CONFIG + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def checkpoint(cluster: LiveCluster, model: Path, tmp_path: Path) -> tuple[str, Path]:
    """A recorded checkpoint, and its trial's directory, in which the trial's own code may write."""
    done = cluster.cli("exp", "create", config(tmp_path), model)
    number = done.stdout.split()[1]
    cluster.cli("exp", "wait", number)
    [saved] = cluster.json("ckpt", "ls", "--experiment", number)
    return saved["id"], cluster.directory / "shared" / "checkpoints" / number / f"{number}-1"


def download(cluster: LiveCluster, checkpoint_id: str) -> tuple[int, bytes]:
    """Status and body; the status of a stream that breaks off is 0, and what had come of it is the body."""
    state = cluster.state()
    request = urllib.request.Request(f"{state['url']}/api/v1/checkpoints/{checkpoint_id}/download")
    request.add_header("Authorization", f"Bearer {Path(state['token_file']).read_text().strip()}")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except http.client.IncompleteRead as error:
        return 0, error.partial
    except OSError:
        return 0, b""


def test_an_experiment_cannot_send_the_services_credentials_anywhere(cluster: LiveCluster, model: Path, tmp_path: Path) -> None:
    with Attacker() as attacker:
        threading.Thread(target=attacker.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{attacker.server_address[1]}"
        for storage in (
            f"{{type: s3, bucket: loot, endpoint: '{endpoint}', access_key_variable: TENUTO_NATS_PASSWORD, "
            "secret_key_variable: TENUTO_NATS_USER, session_token_variable: TENUTO_DATABASE_URL}",
            f"{{store: shared, endpoint: '{endpoint}'}}",
            "{type: shared_directory, path: /etc}",
        ):
            done = cluster.cli("exp", "create", config(tmp_path, f"checkpoint_storage: {storage}"), model, check=False)
            assert done.returncode != 0
            assert "an experiment does not say where a store is" in done.stderr
        cluster.cli("ckpt", "gc", "--dry-run")
        attacker.shutdown()
        assert attacker.asked == 0


def test_a_download_never_follows_a_link_out_of_the_store(
    cluster: LiveCluster, checkpoint: tuple[str, Path], tmp_path: Path
) -> None:
    checkpoint_id, trial = checkpoint
    status, good = download(cluster, checkpoint_id)
    assert status == 200
    assert b"w" * 1000 in good
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET.ljust(1000))
    manifest = trial / "manifests" / f"{checkpoint_id}.json"
    blob = trial / next(file["blob"] for file in json.loads(manifest.read_bytes())["files"] if file["path"] == "weights")
    for victim in (blob, manifest):
        for attack in ("link", "pipe", "directory"):
            aside = victim.with_name(f"{victim.name}.aside")
            victim.rename(aside)
            if attack == "link":
                victim.symlink_to(secret)
            elif attack == "pipe":
                os.mkfifo(victim)
            else:
                victim.mkdir()
            status, body = download(cluster, checkpoint_id)
            assert status not in (200, 500), (attack, body)
            assert SECRET not in body
            victim.rmdir() if attack == "directory" else victim.unlink()
            aside.rename(victim)
    outside = tmp_path / "outside"
    shutil.copytree(trial, outside)
    trial.rename(trial.with_name("aside"))
    trial.symlink_to(outside)
    status, body = download(cluster, checkpoint_id)
    assert status not in (200, 500), "a directory of ours that became a link is not followed"
    assert b"is a link" in body


def test_a_deletion_never_reaches_out_of_the_store(tmp_path: Path) -> None:
    """The same with what deletes: the files behind a link stay."""
    outside, shared = tmp_path / "outside", tmp_path / "checkpoints"
    (outside / "blobs").mkdir(parents=True)
    (outside / "blobs" / "x").write_bytes(SECRET)
    (outside / ".partial-x").write_bytes(SECRET)
    (shared / "1").mkdir(parents=True)
    (shared / "1" / "1-1").symlink_to(outside)
    store = Stores(shared).open_trial(SHARED_STORE, "1-1")
    attacks = (lambda: store.delete(["blobs/x"]), lambda: store.delete_unfinished(2**62), lambda: list(store.entries("")))
    for attack in attacks:
        with contextlib.suppress(OSError):
            attack()
    whole = Stores(shared).open(SHARED_STORE)
    whole.delete([entry.key for entry in whole.entries("")])
    whole.delete_unfinished(2**62)
    assert (outside / "blobs" / "x").read_bytes() == SECRET
    assert (outside / ".partial-x").read_bytes() == SECRET
    assert not (shared / "1" / "1-1").exists(), "the link itself is swept away"
