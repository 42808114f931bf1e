"""A pool whose nodes Tenuto starts itself, by a real sshd: used as a user does it, with the launcher killed in the middle."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto.kernel.monitoring.catalogue import MEASURES, PARKED
from tenuto.version import __version__
from tests.support import page_nodes
from tests.support import sshd as sshd_support
from tests.support.leases import OUTLIVES_THE_TEST
from tests.support.live_cluster import COLD, LiveCluster
from tests.support.scraping import SERVICES, Scraped, probed, scrape
from tests.support.ssh_nodes import SshBench

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.real_part(sshd_support.lack())]
MODEL = Path(__file__).parent / "models/leaving"


METRICS_HOST, METRICS_PORT = "127.0.0.4", 9100


def lacking(scraped: dict[str, Scraped]) -> set[tuple[str, str]]:
    """Services with what each does not tell: a service that was just started looks at its gauges one after the other, and leaves
    out for a while what took too long."""
    gauges = [measure for measure in MEASURES if measure.kind == "gauge" and measure is not PARKED]
    named = {measure.name: SERVICES if measure.services == "all" else tuple(measure.services.split(", ")) for measure in gauges}
    return {
        (service, name) for name, services in named.items() for service in services if name not in scraped[service].families
    } | {(service, "ready") for service in SERVICES if scraped[service].value("tenuto_ready") != 1}


def check_metrics(cluster: LiveCluster) -> None:
    """While one trial runs on one node: what Prometheus is told, by all services."""

    def found(service: str, name: str, **labels: str) -> float | None:
        return scrape(METRICS_HOST, METRICS_PORT)[service].value(name, **labels)

    cluster.wait_for(lambda: found("launcher", "tenuto_nodes", pool="far", phase="joined") == 1)
    cluster.wait_for(lambda: found("scheduler", "tenuto_pool_trials", pool="far", state="running") == 1)
    cluster.wait_for(lambda: found("gateway", "tenuto_consumer_lag_events", consumer="views") == 0)
    for name in ("tracker", "gateway"):
        cluster.wait_for(lambda name=name: found(name, "tenuto_effects_waiting", consumer=f"effects-{name}") is not None)
    scraped = cluster.once(lambda: scrape(METRICS_HOST, METRICS_PORT), lambda found: not lacking(found))
    assert not lacking(scraped)
    assert scraped["scheduler"].value("tenuto_pool_slots", pool="far", state="used") == 1
    assert scraped["launcher"].value("tenuto_agents", pool="far") == 1
    route = {"method": "GET", "route": "/api/v1/nodes"}
    assert (scraped["gateway"].value("tenuto_rest_requests_total", status="200", **route) or 0) >= 2
    assert (scraped["gateway"].value("tenuto_rest_request_seconds_count", **route) or 0) >= 2
    for index, service in enumerate(SERVICES):
        found_there = scraped[service]
        assert found_there.value("tenuto_build_info", service=service, version=__version__) == 1
        assert found_there.value("process_resident_memory_bytes")
        assert [probed(METRICS_HOST, METRICS_PORT + index, path) for path in ("/healthz", "/readyz", "/x")] == [200, 200, 404]
        consumer = "relay" if service == "relay" else service
        assert found_there.value("tenuto_consumer_position", consumer=consumer) is not None
        if service != "relay":
            assert found_there.value("tenuto_commit_seconds_count", service=service), service
            assert found_there.value("tenuto_decide_seconds_count", service=service), service
    kinds = {name: kind for service in scraped.values() for name, kind in service.families.items() if name.startswith("tenuto_")}
    documented = {measure.name.removesuffix("_total"): measure.kind for measure in MEASURES}
    assert kinds == {name: kind for name, kind in documented.items() if name != PARKED.name}, "and nothing is parked"
    for measure in MEASURES:
        if measure.kind == "gauge" and measure is not PARKED:
            named = measure.services.split(", ") if measure.services != "all" else SERVICES
            assert {service for service in SERVICES if measure.name in scraped[service].families} == set(named), measure.name
    token = (cluster.directory / "rest.token").read_text().strip()
    for service in scraped.values():
        words = {value for name, labels in service.values if name.startswith("tenuto_") for _, value in labels}
        assert not words & {token, "1", "1-1", "far-1"}, "no secret, and nobody's id"


def test_nodes_come_when_work_waits_and_go_when_it_is_done(tmp_path: Path) -> None:
    """Long, because it is one story on one cluster: each step begins where the last one ended."""
    cluster, gate = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False), tmp_path / "gate"
    (tmp_path / "ssh").mkdir()
    (tmp_path / "sshd").mkdir()

    def of(*kinds: str) -> list[Any]:
        return [event.data for event in cluster.events() if event.type in kinds]

    with sshd_support.sshd(tmp_path / "sshd") as sshd:
        bench = SshBench(tmp_path / "ssh", sshd)
        given = {"TENUTO_SHARED_DIRECTORY": str(tmp_path / "cluster/shared"), "TENUTO_HEARTBEAT_SECONDS": "0.5", **COLD}
        bench.write_hosts(bench.host("h0", environment=given), bench.host("h1", environment=given))
        cluster.environment["TENUTO_PROVISIONER_DIRECTORY"] = str(bench.secrets)
        cluster.environment |= OUTLIVES_THE_TEST  # the one trial has one run, on the one node
        cluster.environment["TENUTO_METRICS_LISTEN"] = f"{METRICS_HOST}:{METRICS_PORT}"
        names = {"hosts": "hosts.yaml", "key": "key", "known_hosts": "known_hosts", "python": sys.executable}
        settings = [word for name, value in names.items() for word in ("--set", f"{name}={value}")]
        with cluster.listening("127.0.0.4"):
            limits = ("--slots", "1", "--max", "2", "--idle-seconds", "10")
            cluster.cli("pool", "create", "far", "--provisioner", "ssh", *settings, *limits)
            checked = cluster.json("pool", "check", "far")
            assert checked["ready"], checked
            assert "Nodes on other machines cannot join" in checked["findings"][-1]["note"], "at 127.0.0.4"
            wrong = cluster.cli("pool", "change", "far", "--set", "ssh_password=x", check=False)
            assert "looks like a secret" in wrong.stderr
            assert not cluster.json("node", "ls")
            (bench.secrets / "hosts.yaml").rename(bench.secrets / "hosts.away")
            cluster.wait_for(lambda: "hosts.yaml" in cluster.cli("pool", "show", "far").stdout)
            (bench.secrets / "hosts.away").rename(bench.secrets / "hosts.yaml")

            options = ("--set", "resources.pool=far", "--set", f"hyperparameters.gate={gate}")
            cluster.cli("exp", "create", MODEL / "config.yaml", MODEL, *options)
            cluster.wait_for(lambda: bool(of("NodeRequested")))
            cluster.kill("launcher")
            cluster.wait_for(lambda: bool(of("NodeStarted")))
            cluster.kill("launcher")
            cluster.wait_for(lambda: bool(of("CheckpointSaved")))
            [node] = cluster.json("node", "ls")
            assert (node["id"], node["phase"], node["pool"]) == ("far-1", "joined", "far")
            assert "experiment 1" in node["reason"]
            assert [data.slots[0].agent_id for data in of("AllocationGranted")] == ["far-1"]
            # The launcher, which was just killed, may not answer yet.
            ready, command = "agent is ready", ("node", "logs", "far-1")
            assert ready in cluster.once(lambda: cluster.cli(*command, check=False).stdout, lambda said: ready in said)
            assert "far-1" in cluster.cli("node", "ls").stdout
            shown = cluster.cli("pool", "show", "far").stdout
            assert "provisioner ssh" in shown
            assert "nodes: 1, of which 0 are coming" in shown

            check_metrics(cluster)
            if not page_nodes.lack():
                cluster.cli("pool", "change", "far", "--max", "1")
                cluster.cli("exp", "create", MODEL / "config.yaml", MODEL, *options)
                page_nodes.look_at_nodes(cluster, "far", "far-1", waiting=2)

            gate.touch()
            cluster.wait_for(lambda: bool(of("ExperimentCompleted")))
            cluster.wait_for(lambda: bool(of("NodeReleased")))
            cluster.kill("launcher")
            cluster.wait_for(lambda: bool(of("NodeEnded")))
            assert cluster.json("node", "ls") == []
            kinds = [
                type(data).__name__ for data in of("NodeRequested", "NodeStarted", "NodeReleased", "NodeFailed", "NodeEnded")
            ]
            assert kinds == ["NodeRequested", "NodeStarted", "NodeReleased", "NodeEnded"], "one node, whatever was killed"
            assert cluster.cli("agent", "run", "--name", "far-1", "--directory", tmp_path / "thief", check=False).returncode
            replayed = cluster.cli("exp", "replay", "1", "--verify")
            assert replayed.returncode == 0
