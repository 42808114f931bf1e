"""Messages for bad inputs are those of docs/errors.md: its sentences are compared with the output of the real command, on one
real cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.live_cluster import ROOT, LiveCluster, tenuto
from tests.support.ports import closed_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
DOCUMENT = ROOT / "docs" / "errors.md"
MODEL = ROOT / "tests" / "e2e" / "models" / "bad_inputs"
CONFIG = """\
name: bad-inputs
entrypoint: model_def:MyTrial
hyperparameters: {learning_rate: 0.1}
searcher: {name: single, metric: loss, max_length: {batches: 8}}
max_restarts: 0
"""
NEVER_CALLED = """
class Noting(pytorch.PyTorchCallback):
    def on_training_epoch_end(self, epoch_idx): ...

MyTrial.build_callbacks = lambda self: {"noting": Noting()}
"""
CONTEXT_BYTES_MAX = 1_000_000
EXIT_NOT_COMPLETED = 2


def documented() -> dict[str, list[str]]:
    """The rows of the document's table: what is printed, by bad input."""
    rows = {}
    for line in DOCUMENT.read_text().splitlines():
        cells = line.strip("| ").split(" | ")
        if line.startswith("| ") and len(cells) == 2 and cells[0] != "bad input":
            spans = [re.fullmatch(r"(`+)(.*)\1", text) for text in cells[1].split("<br>")]
            rows[cells[0].replace("`", "")] = [span[2] for span in spans if span is not None]
            assert all(spans), line
    return rows


def pattern(sentence: str) -> re.Pattern[str]:
    """The sentence as a line, or as the rest of a line that begins with a time or a place."""
    parts = re.split(r"\{\w+\}", sentence)
    return re.compile(rf"(?:^|  |\] ){'.+'.join(map(re.escape, parts))}$", re.MULTILINE)


@dataclasses.dataclass
class User:
    """Runs commands as a user does, on the module's cluster unless told otherwise."""

    cluster: LiveCluster
    directory: Path
    experiments: dict[str, str] = dataclasses.field(default_factory=dict)
    expected: list[str] = dataclasses.field(default_factory=list)
    """The sentences that are looked for now."""

    def run(self, *arguments: str | Path, **environment: str) -> str:
        """Output of a command that must fail, without a traceback."""
        done = tenuto(arguments, self.cluster.environment | environment)
        assert done.returncode == 1, done
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    def config(self, *changes: tuple[str, str]) -> Path:
        text = CONFIG
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        handle, path = tempfile.mkstemp(dir=self.directory, suffix=".yaml")
        os.write(handle, text.encode())
        os.close(handle)
        return Path(path)

    def model(self, name: str, **files: str | bytes) -> Path:
        directory = self.directory / name
        shutil.copytree(MODEL, directory, ignore=shutil.ignore_patterns("__pycache__"))
        for file, content in files.items():
            (directory / file.replace("__", ".")).write_bytes(content.encode() if isinstance(content, str) else content)
        return directory

    def refused(self, *changes: tuple[str, str]) -> str:
        return self.run("exp", "create", self.config(*changes), MODEL)

    def submit(self, name: str, *changes: tuple[str, str], model: Path = MODEL) -> None:
        self.experiments[name] = str(self.cluster.json("exp", "create", self.config(*changes), model)["id"])

    def outcome(self, name: str, status: int = 0, printed: str = "") -> str:
        """Output of following the experiment to its end, and its log, after what another command has printed."""
        number = self.experiments[name]
        followed = self.cluster.cli("exp", "wait", number, "--follow", check=False)
        assert followed.returncode == status, followed
        said = printed + followed.stdout + followed.stderr
        return self.cluster.once(
            lambda: said + self.cluster.cli("exp", "logs", number).stdout,
            lambda found: all(pattern(sentence).search(found) for sentence in self.expected),
        )


@contextlib.contextmanager
def full_disk(directory: Path) -> Iterator[Path | None]:
    """A disk without a free byte; None where this process may not mount one."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0777", "none", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        (directory / "checkpoints").mkdir(mode=0o777)
        with contextlib.suppress(OSError), (directory / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    """A cluster on which the experiments that go wrong are under way, two at a time."""
    directory = Path(tempfile.mkdtemp(prefix="tenuto-bad-inputs-"))
    directory.chmod(0o711)
    cluster = LiveCluster(directory / "cluster")
    for name in ("TENUTO_URL", "TENUTO_TOKEN", "TENUTO_TOKEN_FILE"):
        cluster.environment.pop(name, None)
    cluster.environment |= {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing"}
    cluster.environment["TENUTO_CONTEXT_BYTES_MAX"] = str(CONTEXT_BYTES_MAX)
    made = User(cluster, directory)
    try:
        with full_disk(directory / "full") as disk, closed_port() as port:
            cluster.up()
            storage, file = "max_restarts: 0\ncheckpoint_storage: {store: %s}", directory / "file"
            file.touch()
            bucket = ("--type", "s3", "--bucket", "nothing", "--endpoint", f"http://127.0.0.1:{port}")
            cluster.cli("store", "create", "bucket", *bucket, "--no-test")
            cluster.cli("store", "create", "nowhere", "--path", file / "checkpoints", "--no-test")
            made.submit("unreachable bucket", ("max_restarts: 0", storage % "bucket"))
            made.submit("unreachable storage", ("max_restarts: 0", storage % "nowhere"))
            if disk is not None:
                cluster.cli("store", "create", "full", "--path", disk / "checkpoints", "--no-test")
                made.submit("no space left", ("max_restarts: 0", storage % "full"))
            raising = made.model("raising", model_def__py="import no_such_package\n\n\nclass MyTrial: ...\n")
            made.submit("raises", model=raising)
            source = (MODEL / "model_def.py").read_text() + NEVER_CALLED
            made.submit("never called", model=made.model("never", model_def__py=source))
            made.submit("other metric", ("metric: loss", "metric: accuracy"))
            made.submit("nan", ("learning_rate: 0.1", "learning_rate: 1e30"))
            yield made
    finally:
        cluster.down()
        shutil.rmtree(directory, ignore_errors=True)


def too_large(user: User) -> str:
    large = user.model("large", data__bin=os.urandom(2 * CONTEXT_BYTES_MAX))
    create = ("exp", "create", user.config(), large)
    return user.run(*create) + user.run(*create, TENUTO_CONTEXT_BYTES_MAX=str(10 * CONTEXT_BYTES_MAX))


def waits(user: User, resources: str) -> str:
    config = user.config(("max_restarts: 0", f"max_restarts: 0\nresources: {{{resources}}}"))
    done = user.cluster.cli("exp", "create", config, MODEL)
    number = done.stdout.split()[1]
    user.cluster.cli("exp", "kill", number)
    return done.stderr


def removed_user(user: User) -> str:
    token = user.cluster.json("user", "create", "olga")["token"]
    config = user.config(("max_restarts: 0", "max_restarts: 0\nresources: {pool: gpus}"))
    made = user.cluster.cli("exp", "create", config, MODEL, "--json", more={"TENUTO_TOKEN": token})
    user.cluster.cli("user", "rm", "olga")
    said = user.run("user", "create", "olga")
    user.cluster.cli("exp", "kill", str(json.loads(made.stdout)["id"]))
    return said


def no_cluster(user: User) -> str:
    with closed_port() as port:
        return user.run("exp", "ls", TENUTO_DATA_DIRECTORY=str(user.directory / "nothing")) + user.run(
            "exp", "ls", TENUTO_URL=f"http://127.0.0.1:{port}", TENUTO_TOKEN="x"
        )


def port_taken(user: User) -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return user.run("up", "-d", "--port", str(server.getsockname()[1]), "--data-dir", user.directory / "second")


def no_space_left(user: User) -> str:
    if "no space left" not in user.experiments:
        pytest.skip("mounting needs root")
    return user.outcome("no space left", printed=user.run("up", "-d", "--data-dir", user.directory / "full"))


def wrong_webhook(user: User) -> str:
    create = ("webhook", "create", "wrong", "--to", "http", "--url", "https://example.com", "--on")
    return user.run(*create, "experiment") + user.run(*create, "event:Nothing") + user.run("webhook", "test", "nothing")


def webhook_inside(user: User) -> str:
    create = ("webhook", "create", "inside", "--to", "http", "--url", "http://127.0.0.1:9/", "--on", "checkpoint_damaged")
    user.cluster.cli(*create)
    said = user.run("webhook", "test", "inside")
    user.cluster.cli("webhook", "rm", "inside")
    return said


def wrong_template(user: User) -> str:
    user.cluster.cli("template", "set", "containers", user.config((CONFIG, "environment: {pull: always}\n")))
    said = user.run("template", "set", "wrong", user.config((CONFIG, "max_restarts: many\n")))
    said += user.refused(("max_restarts: 0", "template: slow")) + user.refused(("max_restarts: 0", "template: containers"))
    user.cluster.cli("template", "rm", "containers")
    return said


PRODUCED: dict[str, Callable[[User], str]] = {
    "broken YAML": lambda user: user.refused(("hyperparameters: {learning_rate: 0.1}", "labels: [one\nsearch: 1")),
    "unknown field": lambda user: user.refused(("max_restarts", "max_restart")),
    "fields of Determined": lambda user: user.refused(
        (", max_length: {batches: 8}", ""), ("max_restarts:", "environment: {environment_variables: [A=1]}\nrecords_per_epoch:")
    ),
    "store that nobody declared": lambda user: (
        user.refused(("max_restarts: 0", "max_restarts: 0\ncheckpoint_storage: {store: team-a}"))
        + user.refused(("max_restarts: 0", "max_restarts: 0\ncheckpoint_storage: {type: s3, bucket: team-a}"))
    ),
    "wrong type": lambda user: user.refused(("max_restarts: 0", "max_restarts: many"), ("{batches: 8}", "8")),
    "template that is not there, or does not fit": wrong_template,
    "unknown search method": lambda user: user.refused(("name: single", "name: ashaa")),
    "file that is not there": lambda user: (
        user.run("exp", "create", "none.yaml", MODEL) + user.run("exp", "create", user.config(), user.directory / "none")
    ),
    "more slots than there are": lambda user: waits(user, "slots_per_trial: 64"),
    "pool without agents": lambda user: waits(user, "pool: gpus"),
    "experiment, trial or checkpoint that is not there": lambda user: (
        user.run("exp", "wait", "999") + user.run("trial", "describe", "1-999") + user.run("ckpt", "download", "none")
    ),
    "missing entrypoint": lambda user: user.refused(("entrypoint: model_def:MyTrial\n", "")),
    "entrypoint that is not there": lambda user: (
        user.refused(("model_def:", "model_de:")) + user.refused((":MyTrial", ":MyTrail"))
    ),
    "entrypoint that raises on import": lambda user: user.outcome("raises", EXIT_NOT_COMPLETED),
    "method of a trial or callback that would never be called": lambda user: user.outcome("never called", EXIT_NOT_COMPLETED),
    "context over the limit": too_large,
    "metric never reported": lambda user: user.outcome("other metric", EXIT_NOT_COMPLETED),
    "metric NaN": lambda user: user.outcome("nan"),
    "unreachable storage": lambda user: user.outcome("unreachable storage"),
    "unreachable bucket": lambda user: user.outcome("unreachable bucket"),
    "wrong token": lambda user: user.run("exp", "ls", TENUTO_TOKEN="wrong"),
    "name of a removed user whose experiments go on": removed_user,
    "no cluster": no_cluster,
    "wrong setting": lambda user: user.run("up", "-d", "--data-dir", user.directory / "third", TENUTO_CPU_SLOTS="two"),
    "port taken": port_taken,
    "second up on the same directory": lambda user: user.run("up", "-d"),
    "worker account that cannot be used": lambda user: "".join(
        user.run("up", "-d", "--data-dir", user.directory / "fourth", "--worker-user", name) for name in ("no-such-user", "root")
    ),
    "agent without credentials": lambda user: (
        user.run("agent", "revoke", "no-such-agent") + user.run("agent", "credentials", "two words")
    ),
    "webhook that cannot be": wrong_webhook,
    "webhook to an address inside the network": webhook_inside,
    "no space left": no_space_left,
}


def test_every_row_of_the_document_is_produced_here() -> None:
    assert set(documented()) == set(PRODUCED)


@pytest.mark.parametrize("bad_input", PRODUCED)
def test_what_the_document_shows_is_what_is_printed(user: User, bad_input: str) -> None:
    user.expected = documented()[bad_input]
    printed = PRODUCED[bad_input](user)
    for sentence in user.expected:
        assert pattern(sentence).search(printed), f"{sentence}\nis not in what was printed:\n{printed}"
