"""deploy/compose.yaml gives each process the settings that its code asks for, and the files that these name."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenuto.kernel import certificates
from tenuto.kernel.settings import Settings
from tests.support.live_cluster import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
ON_THE_BUS = {"database_url", "nats_url", "nats_user", "nats_password_file"}
"""Of every service: read in the kernel's frame."""
MODULES = {
    "relay": "src/tenuto/kernel/relay.py",
    **{name: f"services/{name}" for name in ("searcher", "scheduler", "launcher", "tracker", "gateway")},
}
NOT_NEEDED = {"anchor_targets", "anchor_key_file", "database_owner_url"}
NOT_NEEDED |= {"rest_cert_file", "rest_key_file", "rest_tls_host", "nats_ca_file"}
"""Without the first two nothing is noted elsewhere; migrations have a container of their own. The last are of TLS, which a proxy
speaks before this cluster, whose network is its own."""


def asked_for(path: Path) -> set[str]:
    """Settings without a default that the code of a process reads."""
    bare = {item.name for item in fields(Settings) if item.default == ""}
    found = set()
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and "settings" in ast.unparse(node.value) and node.attr in bare:
                found.add(node.attr)
    return found - NOT_NEEDED


def environment(service: str) -> dict[str, str]:
    found: dict[str, str] = COMPOSE["services"][service]["environment"]
    return found


@pytest.mark.parametrize("service", sorted(MODULES))
def test_each_service_is_given_what_its_code_asks_for(service: str) -> None:
    needed = {f"TENUTO_{name.upper()}" for name in asked_for(ROOT / MODULES[service]) | ON_THE_BUS}
    assert needed <= environment(service).keys()
    known = {f"TENUTO_{item.name.upper()}" for item in fields(Settings)}
    assert environment(service).keys() <= known, "a variable that no process reads"
    module = MODULES[service].removeprefix("src/tenuto/").removesuffix(".py").replace("/", ".")
    assert COMPOSE["services"][service]["command"] == [f"tenuto.{module}"]


@pytest.mark.parametrize("service", sorted({*MODULES, "agent"}))
def test_files_that_settings_name_are_mounted(service: str) -> None:
    mounted = [_split(volume)[1] for volume in COMPOSE["services"][service]["volumes"]]
    for name, value in environment(service).items():
        value = value.replace(":?}", "}")
        if name.endswith(("_FILE", "_DIRECTORY")):
            assert any(value == target or value.startswith(f"{target}/") for target in mounted), name


def _split(volume: str) -> list[str]:
    """Source and target; a variable that must be set has a colon of its own."""
    return volume.replace(":?}", "}").removesuffix(":ro").split(":")


def test_gateway_and_launcher_share_the_key_and_nobody_else_has_it() -> None:
    """Nor is it in the image, or in a directory that agents see."""
    with_key = {
        name
        for name, item in COMPOSE["services"].items()
        if any(_split(volume)[0] == "keys" for volume in item.get("volumes", ()))
    }
    assert with_key == {"gateway", "launcher"}
    assert environment("gateway")["TENUTO_SECRET_KEY_FILE"] == environment("launcher")["TENUTO_SECRET_KEY_FILE"]
    named = {
        _split(volume)[0] for item in COMPOSE["services"].values() for volume in item.get("volumes", ()) if volume[0].isalpha()
    }
    assert named == COMPOSE["volumes"].keys()


def test_services_are_in_the_group_of_users_code() -> None:
    """Its number is what the image says, and not the next free one: they read and delete what workers store."""
    image = (ROOT / "deploy/Dockerfile").read_text().replace("\\\n", " ")
    [made] = re.findall(r"groupadd --gid (\d+) tenuto-worker\b", image)
    [user] = [item for item in image.split("&&") if item.strip().startswith("useradd") and "tenuto-worker" in item]
    assert f"--gid {made} " in user
    assert "--user-group" not in user, "which takes the next free number"
    assert image.index("groupadd --gid") < image.index("useradd")
    for service in MODULES:
        assert COMPOSE["services"][service]["group_add"] == [made]


def test_the_account_of_users_code_has_no_way_to_what_others_submitted() -> None:
    """Packed model directories are for the gateway's account (1000) and its group; that of workers is another one."""
    image = (ROOT / "deploy/Dockerfile").read_text()
    assert "groupadd --gid 1000 tenuto " in image
    assert "--uid 1000 --gid 1000 tenuto " in image
    assert COMPOSE["services"]["agent"]["user"] == "root"
    assert environment("agent")["TENUTO_WORKER_USER"] == "tenuto-worker"


def test_the_image_is_made_of_what_is_copied_into_it_alone() -> None:
    """Else a developer's virtual environment would be sent to the daemon with each build."""
    image = (ROOT / "deploy/Dockerfile").read_text()
    copied = {source for line in re.findall(r"^COPY (.+)$", image, re.MULTILINE) for source in line.split()[:-1]}
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied


def test_machines_join_where_the_second_file_is_given_too() -> None:
    """Gateway and bus are published with TLS, and what the gateway tells machines is where they are."""
    more: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.join.yaml").read_text())
    assert more["services"].keys() - {"certificate"} <= COMPOSE["services"].keys()
    given = more["services"]["gateway"]["environment"]
    assert given.keys() <= {f"TENUTO_{item.name.upper()}" for item in fields(Settings)}
    for service, port in (("nats", 4222), ("gateway", 8080)):
        assert more["services"][service]["ports"] == [f"${{TENUTO_LISTEN_ADDRESS:?}}:{port}:{port}"]
        assert "tls:/tls:ro" in more["services"][service]["volumes"]
    assert given["TENUTO_NATS_PUBLIC_URL"] == "tls://${TENUTO_LISTEN_ADDRESS:?}:4222"
    assert given["TENUTO_PUBLIC_URL"] == "https://${TENUTO_LISTEN_ADDRESS:?}:8080"
    assert all(value.startswith("/tls/") for name, value in given.items() if name.endswith("_FILE"))
    configuration = (ROOT / "deploy/nats.join.conf").read_text()
    assert 'include "nats.conf"' in configuration
    assert "/tls" in (ROOT / "deploy/Dockerfile").read_text(), "its volume belongs to the account that makes the certificate"
    assert more["services"]["certificate"]["command"][0] == certificates.__name__
