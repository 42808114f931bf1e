"""Nodes as Compute Engine is told of them: names, settings, and what Google's refusals mean."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.schemas.names import NAME_PATTERN
from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners.gcp import machines
from tenuto.services.launcher.adapters.provisioners.gcp.checks import needs
from tenuto.services.launcher.adapters.provisioners.gcp.machines import ComputeInstance
from tenuto.services.launcher.adapters.provisioners.gcp.refusals import ComputeEngineRefusal
from tenuto.services.launcher.adapters.provisioners.gcp.settings import (
    NAMES,
    ComputeEngineConnection,
    InstanceSettings,
    connection_of,
    instance_of,
)
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting
from tests.support.import_graph import ROOT

NODE_IDS = st.from_regex(NAME_PATTERN, fullmatch=True).map(lambda name: f"{name}-7")
BASE = {"project": "my-project", "zones": "europe-west4-a", "machine_type": "n1-standard-8", "image_family": "tenuto"}


def settings_of(node_type: NodeType | None = None, **settings: str) -> InstanceSettings:
    given_settings = {key: value for key, value in {**BASE, **settings}.items() if value}
    return instance_of(Provisioning(provisioner="gcp", settings=given_settings), node_type or NodeType())


@given(st.text(min_size=1, max_size=80), NODE_IDS, NODE_IDS)
def test_names_are_as_google_takes_them_and_no_two_nodes_share_one(cluster: str, one: str, other: str) -> None:
    name = machines.name_of(cluster, one)
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)
    assert (name == machines.name_of(cluster, other)) == (one == other)
    assert re.fullmatch(r"[a-z0-9_-]{1,63}", machines.label_of(cluster))
    assert machines.label_of(one) != machines.label_of(other) or one == other


def test_whose_an_instance_is_stands_in_its_description_and_nothing_else_is_believed() -> None:
    for text in ("", "null", "[]", "5", '{"tenuto": 5}', '{"tenuto": {"cluster": "c"}}', "x" * 3_000):
        assert machines.whose(ComputeInstance("n", "z", "RUNNING", description=text)) is None


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "ZONE_RESOURCE_POOL_EXHAUSTED", "capacity"),
        (0, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "capacity"),
        (503, "stockout", "capacity"),
        (403, "quotaExceeded", "quota"),
        (0, "QUOTA_EXCEEDED", "quota"),
        (403, "rateLimitExceeded", "unreachable"),
        (429, "RATE_LIMIT_EXCEEDED", "unreachable"),
        (429, "", "unreachable"),
        (403, "forbidden", "refused"),
        (400, "invalid", "refused"),
        (400, "resourceNotReady", "unreachable"),
        (401, "", "refused"),
        (404, "notFound", "refused"),
        (409, "conflict", "unreachable"),
        (500, "backendError", "unreachable"),
        (502, "", "unreachable"),
    ],
)
def test_what_a_refusal_means(status: int, code: str, kind: str) -> None:
    error = ComputeEngineRefusal(status, code, "Google says why.").error("start instance a")
    assert error.kind == kind
    assert str(error).startswith("Google does not start instance a: ")
    assert str(error).count("..") == 0


def test_what_google_quotes_of_a_request_is_not_shown() -> None:
    words = f"Invalid value for field 'resource.metadata.items[0].value': '#!/bin/bash {'x' * 90} token-1'. It is too large."
    shown = str(ComputeEngineRefusal(400, "invalid", words).error("start instance a"))
    assert "token-1" not in shown
    assert "'resource.metadata.items[0].value'" in shown
    assert "It is too large" in shown
    assert "token-2" not in str(ComputeEngineRefusal(400, "invalid", "It has 'token-2'.").error("start instance a", "token-2"))
    assert "\x1b" not in str(ComputeEngineRefusal(400, "invalid", "a\x1b[31mb").error("start instance a"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"zones": ""}, "Setting zones is required"),
        ({"zones": "Europe"}, "must be zones with commas between"),
        ({"zones": ",".join(f"europe-west{number}-a" for number in range(30))}, "may have at most 20"),
        ({"image": "one"}, "One of the settings image and image_family is required"),
        ({"image_family": ""}, "One of the settings image and image_family is required"),
        ({"accelerator": "nvidia-tesla-t4"}, "such as nvidia-tesla-t4:1"),
        ({"labels": "tenuto-pool=mine"}, "none of which begins with tenuto-"),
        ({"labels": "Team=a"}, "of small letters"),
        ({"spot": "yes"}, "true or false"),
        ({"spot": "true", "on_host_maintenance": "migrate"}, "are never moved"),
        ({"accelerator": "nvidia-tesla-t4:1", "on_host_maintenance": "migrate"}, "are never moved"),
        ({"disk_gb": "1"}, "from 10 to 65536"),
        ({"lifetime_hours": "3000"}, "from 1 to 2800"),
        ({"startup_script": "rm"}, "Setting startup_script is unknown"),
        ({"subnetwork": "../../x"}, "must be the name of a subnetwork"),
        ({"service_account": "a b"}, "must be the address of a service account"),
        ({"machine_type": "n1'; rm"}, "must be the name of a machine type"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(BadSetting, match=re.escape(words)):
        settings_of(**settings)


@pytest.mark.parametrize(
    "endpoint", ["http://example.org", "https://user:x@host", "ftp://a", "https://a/path", "http://127.0.0.1.example.org"]
)
def test_credentials_are_sent_to_no_address_that_the_network_reads(endpoint: str) -> None:
    with pytest.raises(BadSetting, match="must be the address of an API"):
        connection_of(Provisioning(provisioner="gcp", settings={**BASE, "endpoint": endpoint}))


def test_what_belongs_to_the_pool_is_not_set_for_a_type() -> None:
    assert connection_of(Provisioning(provisioner="gcp", settings=BASE)) == ComputeEngineConnection("my-project")
    with pytest.raises(BadSetting, match="Setting project belongs to the pool"):
        settings_of(NodeType(settings={"project": "other"}))
    with pytest.raises(BadSetting, match="leave out images"):
        settings_of(NodeType(images=True))
    with pytest.raises(BadSetting, match="leave out accelerator"):
        settings_of(NodeType(device="cpu", settings={"accelerator": "nvidia-tesla-t4:1"}))


@pytest.mark.parametrize(
    ("settings", "terminates"),
    [
        ({}, False),
        ({"on_host_maintenance": "terminate"}, True),
        ({"spot": "true"}, True),
        ({"accelerator": "nvidia-tesla-t4:1"}, True),
        ({"machine_type": "a2-highgpu-1g"}, True),
    ],
)
def test_instances_that_cannot_be_moved_end_with_their_host(settings: dict[str, str], terminates: bool) -> None:
    assert settings_of(**settings).terminates == terminates


def test_what_a_node_takes_of_quotas() -> None:
    spot = settings_of(accelerator="nvidia-tesla-t4:2", spot="true", disk_type="pd-standard")
    assert needs(spot, 8) == {
        "INSTANCES": 1, "CPUS": 8, "IN_USE_ADDRESSES": 1, "DISKS_TOTAL_GB": 100, "PREEMPTIBLE_NVIDIA_T4_GPUS": 2,
    }  # fmt: skip
    assert needs(settings_of(machine_type="c3-standard-8", external_ip="false"), 8) == {
        "INSTANCES": 1, "C3_CPUS": 8, "SSD_TOTAL_GB": 100,
    }  # fmt: skip


def test_the_last_lines_and_no_more() -> None:
    assert machines.last_lines("a\r\nb\nc", 2) == "b\nc\n"
    assert machines.last_lines("a", 0) == "a\n"


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs/gcp.md").read_text()
    assert [name for name in sorted(NAMES) if f"`{name}`" not in text] == []
