"""Lines that a worker prints, the agents that a trial avoids because of them, and patterns that are refused."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.replay import verify_decisions
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.config.log_policies import LINE_CHARACTERS_MAX, matcher
from tenuto.schemas.config.reading import parse_config
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted
from tenuto.schemas.events.request import ExperimentSubmitted, PoolPolicyChanged
from tenuto.schemas.events.trial import LogMatched
from tenuto.schemas.reports import LogLine, LogMatchReport, LogsReport
from tenuto.services.scheduler.explain import explain
from tenuto.services.tracker.commands import RecordTrialReport
from tenuto.services.tracker.core import TrackerCore
from tenuto.workers.agent.output import Matcher
from tests.support.scheduler_driver import WHY, Driver, exited, failed, joined, requested, short, submitted

CONFIG = """
name: x
entrypoint: m:T
searcher: {{name: single, metric: loss, max_length: {{batches: 1}}}}
log_policies: [{{pattern: {pattern}, action: {action}}}]
"""


def matched(allocation: str, agent: str) -> EventData:
    trial = allocation.rsplit("-", 1)[0]
    fact = {"pattern": "CUDA error", "action": "exclude_agent", "line": "CUDA error"}
    return LogMatched.model_validate({"trial_id": trial, "allocation_id": allocation, "agent_id": agent, **fact})


@pytest.mark.parametrize("policy", ["priority", "fair_share", "fifo"])
def test_a_trial_avoids_where_it_failed_and_others_do_not(policy: str) -> None:
    driver = Driver()
    driver.feed(PoolPolicyChanged.model_validate({"pool": "default", "policy": policy}))
    driver.feed(joined("a", 1), submitted(1), *requested(1, 1))
    driver.feed(matched("1-1-1", "a"), exited("1-1-1", "failed"), failed("1-1-1"))
    assert len(driver.state.allocations) == 0
    [row] = explain(driver.state, "default", driver.now_us)
    assert (
        row.text == "needs 1 slot outside a, which no agents of pool default can offer even when idle; it waits for other agents"
    )
    assert short(driver.feed(*requested(1, 2))) == ["+1-2-1 a:0"], "another trial of the same experiment may"
    assert short(driver.feed(joined("b", 1))) == ["+1-1-2 b:0"]
    driver.core.check(driver.state)
    assert verify_decisions(driver.core, driver.log).ok


def test_several_agents_are_avoided_and_it_is_remembered_by_a_snapshot() -> None:
    driver = Driver()
    driver.feed(joined("a", 1), submitted(1), *requested(1, 1))
    driver.feed(matched("1-1-1", "a"), exited("1-1-1", "lost"), joined("b", 1))
    driver.feed(matched("1-1-2", "b"), matched("1-1-2", "b"), exited("1-1-2", "lost"))
    assert driver.core.load(driver.core.dump(driver.state)).experiments[1].trials[1].excluded == ("a", "b")
    assert short(driver.feed(joined("c", 1))) == ["+1-1-3 c:0"]


@pytest.mark.parametrize(
    ("pattern", "action", "problem"),
    [
        ("'CUDA ('", "exclude_agent", "log_policies[0].pattern: it is not a regular expression of RE2: missing )"),
        (r"'(a)\1'", "exclude_agent", "log_policies[0].pattern: it is not a regular expression of RE2: invalid escape sequence"),
        ("'(?=a)b'", "exclude_agent", "log_policies[0].pattern: it is not a regular expression of RE2: invalid perl operator"),
        ("'(a{0,30}){0,30}b'", "exclude_agent", "log_policies[0].pattern: it repeats too much, and agents look for it in every"),
        ("'a{2000}'", "exclude_agent", "log_policies[0].pattern: it repeats too much"),
        ("'.*'", "exclude_agent", "log_policies[0].pattern: it would match every line"),
        ("CUDA", "restart", "log_policies[0].action: must be one of exclude_agent"),
    ],
)
def test_a_bad_policy_is_refused_with_its_path(pattern: str, action: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(CONFIG.format(pattern=pattern, action=action))
    assert str(error.value).startswith(problem), str(error.value)


@pytest.mark.parametrize(
    "pattern",
    [".*CUDA error.*", r"Xid \d+.*fallen off", "(ECC|NCCL) (timeout|error)s?", "a{2,16}b", r"\.\*", "(a+)+b", "a.*b.*c.*d"],
)
def test_usual_patterns_are_taken(pattern: str) -> None:
    config = parse_config(CONFIG.format(pattern=f"'{pattern}'", action="exclude_agent"))
    assert config.log_policies[0].pattern == pattern


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "pattern", ["a?" * 60 + "b", "a{0,16}" * 12 + "b", "(a|a)" * 60 + "b", "(a|aa)*b", "(a*)*(a*)*b", "a*a*a*b"]
)
def test_no_pattern_takes_time_without_end(pattern: str) -> None:
    """Each of these takes Python's `re` minutes to years in such a line."""
    [policy] = parse_config(CONFIG.format(pattern=f"'{pattern}'", action="exclude_agent")).log_policies
    assert matcher(policy.pattern).search("a" * LINE_CHARACTERS_MAX) is None
    assert matcher(policy.pattern).search("a" * (LINE_CHARACTERS_MAX - 1) + "b")


def test_a_pattern_of_an_earlier_version_holds_up_nothing() -> None:
    """It is on record, and the record has to be read; nobody can look for it."""
    policies = [{"pattern": pattern, "action": "exclude_agent"} for pattern in ("(?=CUDA)CUDA", "CUDA error")]
    config = ExperimentConfig.model_validate({**assignment().config.model_dump(), "log_policies": policies})
    watch = Matcher(assignment().model_copy(update={"config": config}), "a")
    assert [found.pattern for found in watch.found([lines("CUDA error")])] == ["CUDA error"]


@given(st.text(alphabet="ab .*", max_size=30))
def test_leaving_the_ends_away_changes_no_match(line: str) -> None:
    assert bool(matcher(".*a.*b.*").search(line)) == ("b" in line[line.find("a") + 1 :] if "a" in line else False)


def assignment() -> Assignment:
    config = parse_config(CONFIG.format(pattern="'.*CUDA error.*'", action="exclude_agent"))
    return Assignment(
        allocation_id="1-1-1", trial_id="1-1", trial_number=1, experiment_id=1, config=config,
        context_hash="0",
        hyperparameters={}, trial_seed=1, experiment_seed=1, slots=(AgentSlots(agent_id="a", slot_ids=(0,)),), checkpoint=None,
        target_length=1, action="run",
    )  # fmt: skip


def lines(*texts: str) -> LogsReport:
    found = tuple(LogLine(time_us=1, rank=0, stream="stderr", text=text) for text in texts)
    return LogsReport(trial_id="1-1", allocation_id="1-1-1", lines=found)


def test_the_agent_reports_each_pattern_once() -> None:
    watch = Matcher(assignment(), "a")
    assert watch.found([lines("all is well", "x" * 2_000 + "CUDA error")]) == [], "only the beginning of a line is looked at"
    [found] = watch.found([lines("RuntimeError: CUDA error: ECC", "CUDA error again")])
    assert (found.agent_id, found.line, found.pattern) == ("a", "RuntimeError: CUDA error: ECC", ".*CUDA error.*")
    assert watch.found([lines("CUDA error")]) == []


def test_the_tracker_records_it_for_the_current_allocation_only() -> None:
    core, driver = TrackerCore(), Driver()
    state = core.initial()
    slots = (AgentSlots(agent_id="a", slot_ids=(0,)),)
    granted = AllocationGranted(pool="default", allocation_id="1-1-1", trial_id="1-1", experiment_id=1, slots=slots, reason=WHY)
    submission = submitted(1)
    assert isinstance(submission, ExperimentSubmitted)
    for data in (submission, *requested(1, 1), granted):
        state = core.evolve(state, driver.record(data))
    report = LogMatchReport(
        trial_id="1-1", allocation_id="1-1-1", agent_id="a", pattern="p", action="exclude_agent", line="a line with p"
    )
    assert [data.TYPE for data in core.decide(state, RecordTrialReport(uuid4(), 1, report))] == ["LogMatched"]
    old = report.model_copy(update={"allocation_id": "1-1-9"})
    assert [data.TYPE for data in core.decide(state, RecordTrialReport(uuid4(), 1, old))] == ["ReportRefused"]
