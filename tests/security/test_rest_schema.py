"""Thousands of requests made from the OpenAPI document, right and wrong ones, against a real cluster: no defect of ours (500), no
status and no body that the document does not declare."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.security.attacker import archive, door_of
from tests.support.live_cluster import LiveCluster

SEED = os.environ.get("TENUTO_SCHEMA_SEED", "1")
"""The same requests each time, so that a change is judged by what it changed; other seeds are for whoever hunts."""
SECONDS_MAX = int(os.environ.get("TENUTO_SCHEMA_SECONDS", "40"))
"""For all of them, where the machine asks each operation within it; a slow one is given more."""
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
ENDLESS = "/api/v1/events/stream"
CONFIG = """
name: digits
entrypoint: model_def:Trial
searcher: {name: random, max_trials: 3, metric: accuracy, smaller_is_better: false, max_length: {batches: 100}}
resources: {pool: nobody}
"""


def ask(url: str, token: str, seconds: int, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"), "run", f"{url}/api/v1/openapi.json",
            "--header", f"Authorization: Bearer {token}", "--exclude-path", ENDLESS, "--checks", CHECKS,
            "--max-examples", "5", "--max-time", str(seconds), "--seed", SEED, "--continue-on-failure", "--no-shrink",
            "--no-color", "--warnings", "off", "--generation-database", "none",
        ],
        capture_output=True, text=True, check=False, cwd=directory,
    )  # fmt: skip


def test_no_request_finds_a_defect_or_an_undeclared_answer(server_directory: Path) -> None:
    with LiveCluster(server_directory / "schema", cpu_slots=1, warm=False) as cluster, closing(door_of(cluster)) as door:
        assert [door.submit(CONFIG, archive()).status_code for _ in range(2)] == [201, 201]
        gateway = cluster.pid("gateway")
        for seconds in (SECONDS_MAX, 4 * SECONDS_MAX, 16 * SECONDS_MAX):
            done = ask(door.url, door.token, seconds, server_directory)
            assert done.returncode == 0, done.stdout[-20_000:]
            assert "No issues found" in done.stdout
            [cases] = re.findall(r"(\d+) generated, \d+ passed", done.stdout)
            selected, tested = re.findall(r"(?:Selected|Tested): (\d+)", done.stdout)
            if tested == selected:
                break
        assert selected == tested, "each operation is asked; how many times, the machine's speed says"
        assert int(cases) >= int(tested)
        assert cluster.pid("gateway") == gateway, "the gateway was started again"
