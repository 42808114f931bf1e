"""The script of agents as jobs, under a real Slurm, as an ordinary user submits it (where other accounts can run the Python
of the tests)."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tenuto.embedded.nats import NatsServer
from tests.support import litter
from tests.support import slurm as support
from tests.support.control_plane import ControlPlane, agent_settings
from tests.support.slurm import Slurm

pytestmark = pytest.mark.real_part(support.lack())
USER = support.ordinary_user()
MINUTES = 20


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if reason := support.why_not():
        pytest.skip(reason)
    with support.slurm() as found:
        yield found


@pytest.fixture
async def control(nats: NatsServer, slurm: Slurm, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    lines = (f"TENUTO_NATS_URL={nats.url}", "TENUTO_CPU_SLOTS=3", "TENUTO_HEARTBEAT_SECONDS=0.2", "TENUTO_AGENT_LABELS=rack=7")
    (slurm.directory / "agent.env").write_text("\n".join(lines))
    found = ControlPlane(agent_settings(nats.url, tmp_path))
    await found.start()
    yield found
    await found.stop()


async def test_a_job_of_an_ordinary_user_is_an_agent_until_it_is_canceled(control: ControlPlane, slurm: Slurm) -> None:
    before = time.time()
    job = slurm.submit("--job-name=mine", "--array=4-4", f"--time={MINUTES}", account=USER)
    await control.until(lambda: control.heartbeats)
    beat, [agent] = control.heartbeats[-1], slurm.agents().values()
    assert (beat.agent_id, len(beat.slots)) == ("mine-4", 3)
    assert beat.labels[0] == "rack=7"
    assert beat.labels[1].startswith("slurm_job=")
    assert beat.leaves_at_us is not None
    assert before + MINUTES * 60 - 2 <= beat.leaves_at_us / 1e6 <= time.time() + MINUTES * 60
    assert agent.uids().effective == (pwd.getpwnam(USER).pw_uid if USER else os.getuid())
    assert not [name for name in agent.environ() if name.startswith(("SLURM_", "SBATCH_"))]
    assert litter.handed_down().items() <= agent.environ().items(), "a killed run would leave it"
    slurm.run("scancel", f"{job}_4")
    await control.until(lambda: control.heartbeats[-1].gone)
    assert "now" in {beat.leaving for beat in control.heartbeats}


async def test_a_job_without_settings_says_what_it_lacks(slurm: Slurm) -> None:
    job = slurm.submit("--job-name=lost", TENUTO_SLURM_SETTINGS="/nowhere/agent.env", account=USER)
    deadline = time.monotonic() + support.START_SECONDS_MAX
    while slurm.state(job) != "FAILED":
        assert time.monotonic() < deadline, slurm.printed()
        time.sleep(support.POLL_SECONDS)  # noqa: ASYNC251 - Slurm has no events for this
    assert "agent: /nowhere/agent.env cannot be read; it has the cluster's TENUTO_NATS_URL" in slurm.printed()


async def test_a_job_that_is_too_short_says_so(control: ControlPlane, slurm: Slurm) -> None:
    job = slurm.submit("--job-name=short", "--time=4", "--signal=B:USR1@1", account=USER)
    deadline = time.monotonic() + support.START_SECONDS_MAX
    while slurm.state(job) != "FAILED":
        assert time.monotonic() < deadline, slurm.printed()
        time.sleep(support.POLL_SECONDS)  # noqa: ASYNC251 - Slurm has no events for this
    assert "and nothing begins in its last 300 s: give it more time" in slurm.printed()
