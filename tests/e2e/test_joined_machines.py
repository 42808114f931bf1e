"""Machines that share no directory with the cluster: a trial trains on one, which is lost, and goes on on another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.leases import BEARS_A_CROWD
from tests.support.live_cluster import LiveCluster
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, STORE, S3Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FAR = Path(__file__).parent / "models/far"
NOTHING_SHARED = {"TENUTO_POOL": "far", "TENUTO_SHARED_DIRECTORY": "", "TENUTO_STORES_FILE": ""}


def test_a_trial_goes_on_on_another_machine_where_no_directory_is_shared(tmp_path: Path, s3_server: S3Server) -> None:
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False)
    cluster.environment |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, **BEARS_A_CROWD}
    with cluster:
        place = ["--bucket", s3_server.bucket, "--endpoint", s3_server.endpoint, "--no-test"]
        cluster.cli("store", "create", STORE, "--type", "s3", *place)
        with cluster.another_agent("far-1", **NOTHING_SHARED) as first:
            cluster.cli("exp", "create", FAR / "config.yaml", FAR)
            cluster.wait_for(lambda: sum(event.type == "CheckpointSaved" for event in cluster.events()) == 2)
            with cluster.another_agent("far-2", **NOTHING_SHARED):
                first.die()
                cluster.wait_for(lambda: any(event.type == "ExperimentCompleted" for event in cluster.events()))
                assert "goes on at step 2" in cluster.cli("trial", "logs", "1-1").stdout
                shared = ("--set", "checkpoint_storage.store=shared")
                refused = cluster.cli("exp", "create", FAR / "config.yaml", FAR, *shared, "--follow", check=False)
                assert "name an object store in checkpoint_storage.store" in refused.stdout + refused.stderr
        granted = [event.data.slots[0].agent_id for event in cluster.events() if event.type == "AllocationGranted"]
        assert granted == ["far-1", "far-2", "far-2"]
        assert not list((tmp_path / "cluster/shared/checkpoints").glob("*/*"))
        for name in ("far-1", "far-2"):
            kept = [path for path in (tmp_path / f"cluster-{name}").rglob("*") if path.is_file()]
            assert not [path for path in kept if SECRET_KEY.encode() in path.read_bytes()], "credentials stay in memory"
        cluster.check_bus()
