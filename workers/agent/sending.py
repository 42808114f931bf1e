"""Decides what a lane of the agent sends, and when: pure, so that its bounds can be tested (tests/unit/test_no_storms.py).

A report that the stream has taken is safe there until its receiver takes it, however long that is. So nothing is sent again
because time has passed. A new round, which begins at the first report that is not committed, needs a proof of a loss:

- the receiver met a gap in this round, or
- the stream held none of the lane's messages, and after that the receiver's position was still behind what was sent.

Rounds are spaced with a growing pause, and each halves the window, which then grows by one per commit. So all that is sent in
vain is bounded by a constant number for each report, and a constant number for each loss.

Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

WINDOW_FIRST = 100
"""Reports that may be out (sent and not committed) at the start."""
WINDOW_MAX = 500
"""At 5,000 committed reports per second a tenth of a second: so long a report of another trial waits behind them."""
WINDOW_SLOW = 50
"""Where commits take longer than DELAY_TARGET_SECONDS the window shrinks so far: enough to share commits of a slow receiver."""
WINDOW_MIN = 4
"""After losses it shrinks so far: a stream that loses most of what it gets is sent little."""
DELAY_TARGET_SECONDS = 0.1
"""From sending to commit, beyond what the way alone takes. The window is as large as commits at the measured rate fill so much
time: a report of another trial waits behind it, and a larger one would be committed no sooner."""
WAY_KNOWN_SECONDS = 10.0
"""The least time from sending to commit is that of the way alone, for so long. Then it is measured anew, with few reports (as BBR
does: Cardwell et al., ACM Queue 14(5), 2016): on a machine that became busy the way takes longer."""
WAY_REPORTS = 10
"""On the road while the way is measured: of more, some would wait for the others."""
ROUND_SECONDS_MIN = 0.2
ROUND_SECONDS_MAX = 30.0
"""Pause before a new round: doubles with each round that brought no commit."""
ASK_SECONDS_MIN = 2.0
ASK_SECONDS_MAX = 60.0
"""Reports are out and no word of a commit comes: the receiver is asked for its position, after a pause that doubles each time."""
RETRY_SECONDS_MIN = 0.2
RETRY_SECONDS_MAX = 10.0
"""Pause after the stream did not take a report: doubles each time. The ids of messages keep out those that it took after all."""
STORED_REPORTS_MAX = 10 * WINDOW_MAX
"""More messages of one lane than the rules above can have put into the stream: left by an earlier version, they are cleared."""


@dataclass(frozen=True)
class Mark:
    sequence: int
    """Of the report that is timed."""
    sent_at: float
    out: int
    """Reports on the road then, it among them: as many are committed in the time that it takes."""


@dataclass(frozen=True)
class Sending:
    """What a lane knows about its reports on the road."""

    round: int
    heard: int = 0
    """Last report that is committed, as far as is known."""
    sent: int = 0
    """Last report that the stream took in this round, with all before it."""
    window: int = WINDOW_FIRST
    ask_at: float = 0.0
    ask_seconds: float = ASK_SECONDS_MIN
    clear: bool = False
    """The next question asks to clear the stream of the lane's messages."""
    round_at: float | None = None
    """A new round begins then."""
    round_seconds: float = ROUND_SECONDS_MIN
    round_heard: int = 0
    """`heard` when the round began."""
    retry_at: float = 0.0
    retry_seconds: float = RETRY_SECONDS_MIN
    mark: Mark | None = None
    """The next commit at or beyond it tells how long commits take."""
    way_seconds: float = math.inf
    """Least time from sending to commit of late."""
    way_at: float = -math.inf
    """When that was measured."""
    window_before: int | None = None
    """Of the window that is made small to measure the way: its size before."""

    @property
    def out(self) -> int:
        return self.sent - self.heard

    @property
    def room_until(self) -> int:
        """Sequence up to which reports may be sent."""
        return self.heard + self.window


@dataclass(frozen=True)
class Step:
    """What to do now. `wait`: for a change, at most until then."""

    do: Literal["publish", "ask", "wait"]
    limit: int = 0
    until: float | None = None


def begin(round: int, committed: int, now: float) -> Sending:
    """At the agent's start, or where its spool began again. `round` is one that was never used before."""
    return Sending(round=round, heard=committed, sent=committed, round_heard=committed, ask_at=now)


def next_step(state: Sending, last: int, now: float, batch_max: int) -> tuple[Sending, Step]:
    """`last` is the newest report of the lane."""
    if state.round_at is not None and now >= state.round_at:
        state = _new_round(state, now)
    until = [state.round_at] if state.round_at is not None else []
    if state.out > 0 or state.clear:
        if now >= state.ask_at:
            return state, Step("ask")
        until.append(state.ask_at)
    limit = min(state.room_until, last) - state.sent
    if limit > 0 and state.round_at is None:  # what would follow a gap is dropped
        if now >= state.retry_at:
            return state, Step("publish", min(limit, batch_max))
        until.append(state.retry_at)
    return state, Step("wait", until=min(until, default=None))


def published(state: Sending, through: int, complete: bool, now: float) -> Sending:
    """The stream took the reports up to `through`; `complete`: all that were sent."""
    if through > state.sent:
        if state.out == 0:
            state = replace(state, ask_at=now + ASK_SECONDS_MIN, ask_seconds=ASK_SECONDS_MIN)
        if state.mark is None:
            state = replace(state, mark=Mark(through, now, through - state.heard))
        state = replace(state, sent=through)
    if complete:
        return replace(state, retry_at=now, retry_seconds=RETRY_SECONDS_MIN)
    return replace(state, retry_at=now + state.retry_seconds, retry_seconds=min(2 * state.retry_seconds, RETRY_SECONDS_MAX))


def reconnected(state: Sending, now: float) -> Sending:
    """The link was lost, or the stream was made anew: a question tells whether reports were lost with it."""
    return replace(state, retry_at=now, retry_seconds=RETRY_SECONDS_MIN, ask_at=min(state.ask_at, now + ROUND_SECONDS_MIN))


def told(state: Sending, sequence: int, resend: bool, round: int, now: float) -> Sending:
    """A word of the receiver's. One that brings nothing new changes nothing."""
    if sequence > state.heard:
        state = _committed(state, sequence, now)
    if resend and sequence < state.heard:
        # Late, or the receiver has forgotten reports: its answer tells which.
        return replace(state, ask_at=min(state.ask_at, now + state.round_seconds))
    if resend and round == state.round and state.out > 0:
        return _lost(state, now)
    return state


def asked(state: Sending, now: float) -> Sending:
    """A question is on its way."""
    return replace(
        state,
        ask_at=now + state.ask_seconds,
        ask_seconds=min(2 * state.ask_seconds, ASK_SECONDS_MAX),
        clear=False,
    )


def answered(state: Sending, before: Sending, sequence: int, stored: int | None, now: float) -> Sending:
    """The answer to a question that was asked with the state `before`."""
    if sequence > state.heard:
        state = _committed(state, sequence, now)
    if stored is None:
        return state
    if stored > STORED_REPORTS_MAX:
        return replace(state, clear=True, ask_at=state.ask_at if before.clear else now)
    if stored == 0 and state.round == before.round and sequence < before.sent and state.out > 0:
        return _lost(state, now)
    return state


def _lost(state: Sending, now: float) -> Sending:
    if state.round_at is not None:
        return state
    fruitful = state.heard > state.round_heard
    pause = ROUND_SECONDS_MIN if fruitful else state.round_seconds
    return replace(state, round_at=now + pause, round_seconds=min(2 * pause, ROUND_SECONDS_MAX))


def _new_round(state: Sending, now: float) -> Sending:
    return replace(
        state,
        round=state.round + 1,
        sent=state.heard,
        round_at=None,
        round_heard=state.heard,
        window=max((state.window_before or state.window) // 2, WINDOW_MIN),
        window_before=None,
        mark=None,
        retry_at=now,
        retry_seconds=RETRY_SECONDS_MIN,
    )


def _committed(state: Sending, sequence: int, now: float) -> Sending:
    news, mark = sequence - state.heard, state.mark
    if mark is not None and sequence >= mark.sequence:
        state = _measured(replace(state, mark=None), news, mark, now)
    elif state.window < WINDOW_SLOW and state.window_before is None:
        state = replace(state, window=min(state.window + news, WINDOW_SLOW))
    return replace(
        state,
        heard=sequence,
        sent=max(state.sent, sequence),
        ask_at=now + ASK_SECONDS_MIN,
        ask_seconds=ASK_SECONDS_MIN,
    )


def _measured(state: Sending, news: int, mark: Mark, now: float) -> Sending:
    delay_seconds, few = now - mark.sent_at, mark.out <= WAY_REPORTS
    old = now - state.way_at > WAY_KNOWN_SECONDS
    if delay_seconds <= state.way_seconds or (old and few):
        state = replace(state, way_seconds=delay_seconds, way_at=now)
    elif old and state.window_before is not None:
        return state  # sent before the window was made small
    if state.window_before is not None:  # so few tell nothing about a window as large as before
        return replace(state, window=state.window_before, window_before=None)
    window = _fitting(state.window, news, mark.out, delay_seconds, state.way_seconds)
    if old and state.way_at < now:
        return replace(state, window=min(window, WAY_REPORTS), window_before=window)
    return replace(state, window=window)


def _fitting(window: int, news: int, out: int, delay_seconds: float, way_seconds: float) -> int:
    """A window whose reports take the way and DELAY_TARGET_SECONDS, as far as one commit can tell. What did not fill the window
    says nothing for a larger one; nor does it grow by more than was committed."""
    most_seconds = way_seconds + DELAY_TARGET_SECONDS
    fitting = int(out * most_seconds / max(delay_seconds, 1e-6))
    if delay_seconds > most_seconds:
        return min(window, max(fitting, window // 2, WINDOW_SLOW))
    if 2 * out < window:
        return window
    if delay_seconds < way_seconds + DELAY_TARGET_SECONDS / 2:
        fitting = 2 * window  # hardly anything waits
    return max(window, min(window + news, fitting, WINDOW_MAX))
