"""Clusters under a virtual clock: what the simulator measures; nobody starves; backfill delays nobody; "what if"."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.cli.picture import marks
from tenuto.schemas.envelope import encode_event
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.request import PoolPolicyChanged, ShareChanged, SlotsClosed, SlotsOpened
from tenuto.services.scheduler.simulation.cluster import Costs, SimulatedCluster, SimulationOutcome
from tenuto.services.scheduler.simulation.outages import outages
from tenuto.services.scheduler.simulation.script import recorded, segments
from tenuto.services.scheduler.simulation.traces import TraceError, TraceJob, generated, read_csv, script_of
from tests.support.scheduler_driver import Driver, exited, fair, joined, requested, stopped, submitted

POLICIES = ("priority", "fair_share", "fifo")
SECOND = 1_000_000
FREE = Costs(startup_us=0, save_us=0, checkpoint_us=0)


def run(
    jobs: list[TraceJob], policy: str, *, agents: int = 2, slots: int = 4, costs: Costs = FREE, foretold: bool = True
) -> SimulationOutcome:
    cluster = SimulatedCluster(script_of(jobs, agents, slots, foretold=foretold), policy, costs, keep_history=True)
    return cluster.run()


def doubled(outcome: SimulationOutcome) -> list[str]:
    """Slots that two allocations had at once."""
    wrong, free_at = [], dict[tuple[str, int], int]()
    for item in sorted(segments(outcome.history, outcome.end_us), key=lambda item: item.start_us):
        key = (item.agent_id, item.slot_id)
        if item.start_us < free_at.get(key, 0):
            wrong.append(f"{key} at {item.start_us}")
        free_at[key] = max(item.end_us, free_at.get(key, 0))
    return wrong


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("arrivals", ["poisson", "bursty"])
def test_every_trial_ends_under_failures(policy: str, arrivals: str) -> None:
    """A load below what the agents offer: nobody starves, no slot is doubled, no work is lost without being counted."""
    costs = Costs(failures_us=6 * 3600 * SECOND)
    jobs = generated(30, 16, 3, arrivals=arrivals, load=0.8)
    outcome = run(jobs, policy, agents=2, slots=8, costs=costs)
    assert (outcome.unfinished, doubled(outcome)) == (0, [])
    assert outcome.useful == sum(job.slots * job.work_us * job.trials for job in jobs)
    assert outcome.useful + outcome.lost <= outcome.held + 1
    # The bound is about all agents, whether they failed or not; `utilisation` is not.
    assert 0 < outcome.useful / (outcome.capacity * (outcome.end_us - outcome.start_us)) <= outcome.bound + 1e-9
    assert 0 < outcome.jain <= 1


@pytest.mark.parametrize("policy", POLICIES)
def test_elastic_trials_use_what_would_be_idle_and_do_not_oscillate(policy: str) -> None:
    """Half of the slots would be idle. A trial changes its size no more often than others come and go, and once a minute."""
    jobs = generated(60, 64, 4, arrivals="poisson", load=0.5)
    costs = Costs(startup_us=20 * SECOND, save_us=10 * SECOND)
    rigid, elastic = (
        SimulatedCluster(script_of(jobs, 8, 8, elastic=factor), policy, costs, keep_history=True, checks=factor > 1)
        for factor in (1, 4)
    )
    rigid.run()
    outcome = elastic.run()
    assert (outcome.unfinished, doubled(outcome)) == (0, [])
    assert outcome.useful == pytest.approx(sum(job.slots * job.work_us * job.trials for job in jobs), rel=1e-6)
    assert outcome.useful / outcome.held > 0.93, "what is won must not be lost by saving and starting"
    assert turnaround_us(elastic) < 0.7 * turnaround_us(rigid)
    assert outcome.resizes < 8 * len(jobs)


@pytest.mark.parametrize("policy", POLICIES)
def test_trials_without_slots_run_beside_the_others_through_failures(policy: str) -> None:
    jobs = generated(30, 16, 5, load=0.9, auxiliary=0.4)
    costs = Costs(failures_us=6 * 3600 * SECOND)
    cluster = SimulatedCluster(script_of(jobs, 2, 8, auxiliary_max=100), policy, costs, keep_history=True, checks=True)
    outcome = cluster.run()
    assert (outcome.unfinished, doubled(outcome)) == (0, [])
    assert outcome.useful == sum(job.slots * job.work_us * job.trials for job in jobs)
    auxiliary = [trial for trial in cluster.trials.values() if not trial.slots]
    assert len(auxiliary) > 10
    assert {trial.first_us - trial.script.arrives_us for trial in auxiliary if trial.first_us is not None} == {0}


def turnaround_us(cluster: SimulatedCluster) -> float:
    """Mean time from a trial's arrival to its end."""
    times = [trial.ended_us - trial.script.arrives_us for trial in cluster.trials.values() if trial.ended_us is not None]
    return sum(times) / len(times)


def test_a_gang_and_those_that_give_way_to_it_do_not_take_turns_for_ever() -> None:
    """A gang of 8 was entitled to 8 slots while small gangs were leaving for it, and to none once those waited again: each freed
    slot went back to a small gang, and that was preempted anew, for ever."""
    jobs = generated(59, 8, 113, arrivals="bursty", load=0.7474713571856373, users=4)
    costs = Costs(checkpoint_us=600 * SECOND)
    cluster = SimulatedCluster(
        script_of(jobs, 2, 4, foretold=False, auxiliary_max=2), "fair_share", costs, seed=113, keep_history=True
    )
    outcome = cluster.run()
    assert (outcome.unfinished, doubled(outcome)) == (0, [])
    assert outcome.preemptions < len(cluster.trials)


def test_fair_share_is_fairer_than_first_in_first_out() -> None:
    jobs = generated(60, 32, 5, arrivals="bursty", load=1.0)
    fair, fifo = (run(jobs, policy, agents=4, slots=8) for policy in ("fair_share", "fifo"))
    assert fair.jain > 0.95 > fifo.jain
    assert min(fair.busy, fifo.busy) > 0.95, "slots stayed free that somebody wanted"


@settings(max_examples=60, deadline=None)
@given(
    small=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 300), st.integers(0, 200)), max_size=12),
    running=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 200)), min_size=1, max_size=4),
    policy=st.sampled_from(["fifo", "priority"]),
)
def test_backfill_never_delays_the_gang_at_the_head(
    small: list[tuple[int, int, int]], running: list[tuple[int, int]], policy: str
) -> None:
    """The gang of all slots starts when it would have started had nothing been behind it."""

    def started(jobs: list[TraceJob]) -> int:
        outcome = run(jobs, policy)
        grants = [(time, data) for time, data in outcome.history if isinstance(data, AllocationGranted)]
        return next(time for time, data in grants if sum(len(part.slot_ids) for part in data.slots) == 8)

    while sum(slots for slots, _ in running) > 8:  # all of them run: the gang is at the head
        running = running[1:]
    ahead = [TraceJob(0, "ada", slots, seconds * SECOND, expected_us=seconds * SECOND) for slots, seconds in running]
    gang = TraceJob(1, "ada", 8, 50 * SECOND)
    behind = [
        TraceJob(2 + after * SECOND, "ada", slots, seconds * SECOND, expected_us=seconds * SECOND)
        for slots, seconds, after in small
    ]
    assert started([*ahead, gang, *behind]) == started([*ahead, gang])


def test_backfill_uses_what_would_be_idle() -> None:
    ahead, gang = TraceJob(0, "ada", 6, 1_000 * SECOND), TraceJob(1, "ada", 8, 100 * SECOND)
    behind = [TraceJob(2, "bob", 2, 400 * SECOND), TraceJob(3, "bob", 2, 400 * SECOND)]
    with_it, without = (run([ahead, gang, *behind], "fifo", foretold=foretold) for foretold in (True, False))
    assert sum(with_it.waits_us) < sum(without.waits_us)
    assert with_it.end_us < without.end_us


def test_a_recorded_history_is_run_again_under_another_policy() -> None:
    """One user's two experiments on two slots, by priority in order of arrival; under fair share the second would have begun at
    once."""
    driver = Driver()
    driver.feed(joined("a", 2), submitted(1, user="ada"), *requested(1, 1, 2, 3, 4), submitted(2, user="ada"), *requested(2, 1))
    for trial in ("1-1", "1-2", "1-3", "1-4", "2-1"):
        driver.feed(driver.started(f"{trial}-1"))
        driver.time_passes(100 * SECOND)
        driver.feed(stopped(trial), exited(f"{trial}-1"))
    script = recorded(driver.log)
    assert [(trial.trial_id, round(trial.work_us / SECOND)) for trial in script.trials] == [
        ("1-1", 100), ("1-2", 100), ("1-3", 100), ("1-4", 100), ("2-1", 100),
    ]  # fmt: skip
    waits = {}
    for policy in ("priority", "fair_share"):
        outcome = SimulatedCluster(recorded(driver.log), policy, FREE, keep_history=True, checks=True).run()
        first = next(time for time, data in outcome.history if isinstance(data, AllocationGranted) and data.experiment_id == 2)
        waits[policy] = (first - outcome.start_us) / SECOND
        assert outcome.unfinished == 0
    assert waits["priority"] > 150
    assert waits["fair_share"] < 1


def test_columns_of_public_traces_are_read() -> None:
    helios = ["job_id,user,gpu_num,cpu_num,state,submit_time,start_time,end_time,duration,vc",
              "1,u1,2,8,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:01:00,2020-04-01 00:02:00,60,vcA",
              "2,u2,0,8,COMPLETED,2020-04-01 00:00:05,2020-04-01 00:00:06,2020-04-01 00:00:07,1,vcB",
              "3,u3,8,8,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:00:30,30,vcB"]  # fmt: skip
    jobs = read_csv(helios)
    assert [(job.arrives_us, job.user, job.slots, job.work_us, job.workspace) for job in jobs] == [
        (0, "u3", 8, 30 * SECOND, "vcB"), (10 * SECOND, "u1", 2, 60 * SECOND, "vcA"),
    ]  # fmt: skip
    assert replace(read_csv(["submitted,slots,seconds", "5,1,9.5"])[0], user="x").work_us == 9_500_000
    with pytest.raises(TraceError, match="no column for slots and duration"):
        read_csv(["submit_time,user", "1,a"])
    with pytest.raises(TraceError, match="Line 2 of the trace cannot be read"):
        read_csv(["submit_time,slots,duration", "soon,1,2"])


def test_the_command_compares_policies_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "slots.png"
    arguments = ["sim", "cluster", "--jobs", "20", "--agents", "2", "--slots", "4", "--picture", str(picture), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [(row["policy"], row["unfinished"]) for row in rows] == [(policy, 0) for policy in POLICIES]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"slots-{policy}.png" for policy in POLICIES)
    assert (tmp_path / "slots-fifo.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_runs_a_log_from_a_file_again(tmp_path: Path) -> None:
    driver = Driver()
    driver.feed(joined("a", 1), submitted(1), *requested(1, 1))
    driver.feed(driver.started("1-1-1"))
    driver.time_passes(10 * SECOND)
    driver.feed(stopped("1-1"), exited("1-1-1"))
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"\n".join(encode_event(event) for event in driver.log))
    done = CliRunner().invoke(app, ["sim", "cluster", "--log", str(log), "--policy", "fair_share", "--json"])
    assert done.exit_code == 0, done.output
    assert [(row["trials"], row["unfinished"]) for row in json.loads(done.stdout)] == [(1, 0)]


def test_a_picture_shows_changed_policies_and_slots_out_of_service(tmp_path: Path) -> None:
    driver = Driver()
    driver.feed(joined("a", 2), joined("b", 1), submitted(1), *requested(1, 1))
    driver.feed(SlotsClosed(agent_id="a", slot_id=1), SlotsClosed(agent_id="b", slot_id=None), fair(half_life=24.0))
    driver.time_passes(10 * SECOND)
    driver.feed(SlotsOpened(agent_id="a", slot_id=1), AgentLost(agent_id="b", reason="gone"))
    driver.feed(ShareChanged(owner="user", name="ada", weight=2, max_slots=4))
    driver.time_passes(10 * SECOND)
    driver.feed(PoolPolicyChanged(pool="default", policy="fifo", preempt=True), stopped("1-1"), exited("1-1-1"))
    data = [(event.time_us, event.data) for event in driver.log]
    found = [(item.agent_id, item.slot_id, item.why, round((item.end_us - item.start_us) / SECOND)) for item in outages(data)]
    assert found == [("a", 1, "closed", 10), ("b", 0, "closed", 10), ("b", 0, "gone", 10)]
    assert [text for _, text in marks(driver.log)["changed"]] == [
        "pool default: fair_share, half-life 24 h", "user ada: weight 2, at most 4 slots", "pool default: fifo, preempts",
    ]  # fmt: skip
    log, picture = tmp_path / "log.jsonl", tmp_path / "slots.svg"
    log.write_bytes(b"\n".join(encode_event(event) for event in driver.log))
    done = CliRunner().invoke(app, ["job", "picture", str(picture), "--log", str(log)])
    assert done.exit_code == 0, done.output
    drawn = picture.read_text()
    for text in ("pool default: fair_share, half-life 24 h", "out of service", "agent gone", "b/0"):
        assert f"<!-- {text} -->" in drawn or f"<!--  {text} -->" in drawn, text
