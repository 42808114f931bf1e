"""Decisions of a lane: what the agent sends, and when. Pure, so that its bounds can be tested (tests/unit/test_no_storms.py).

A report that the stream has accepted is safe there until its receiver takes it, however long that is. So nothing is sent again
only because time has passed. A new round, which begins at the first report that is not committed, needs proof of a loss:

- the receiver met a gap in this round, or
- the stream held none of the lane's messages, and the receiver's position, read after that, was still behind the last report
sent.

Rounds are spaced with a growing pause, and each halves the window, which then grows by one per commit. So the number of needless
messages is bounded by a constant for each report, and a constant for each loss.

Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

WINDOW_FIRST = 100
"""Reports that may be in flight (sent and not committed) at the start."""
WINDOW_MAX = 500
"""Most reports in flight. At 5,000 committed reports per second these take a tenth of a second, for which a report of another
trial waits behind them."""
WINDOW_SLOW = 50
"""Smallest window if commits take longer than DELAY_TARGET_SECONDS: enough to share commits of a slow receiver."""
WINDOW_MIN = 4
"""Smallest window after losses: little is sent to a stream that loses most of it."""
DELAY_TARGET_SECONDS = 0.1
"""Target time from sending to commit, beyond the time of the transfer alone. The window is as large as commits at the measured
rate fill this time: a report of another trial waits behind it, and a larger window would commit no sooner."""
WAY_KNOWN_SECONDS = 10.0
"""Time for which the least time from sending to commit counts as that of the transfer alone. Then it is measured anew, with
few reports (as BBR does: Cardwell et al., ACM Queue 14(5), 2016), because the transfer takes longer on a machine that became
busy."""
WAY_REPORTS = 10
"""Reports in flight while the transfer is measured: with more, some would wait for others."""
ROUND_SECONDS_MIN = 0.2
ROUND_SECONDS_MAX = 30.0
"""Pause before a new round: doubles with each round that brought no commit."""
ASK_SECONDS_MIN = 2.0
ASK_SECONDS_MAX = 60.0
"""Pause before the receiver is asked for its position, if reports are in flight and no commit is heard; doubles each time."""
RETRY_SECONDS_MIN = 0.2
RETRY_SECONDS_MAX = 10.0
"""Pause after the stream did not accept a report; doubles each time. Message ids keep out reports that it accepted after all."""
STORED_REPORTS_MAX = 10 * WINDOW_MAX
"""Messages of one lane in the stream above which they are cleared: more than the rules above can have sent, so they are left
from an earlier version."""


@dataclass(frozen=True)
class Mark:
    sequence: int
    """Sequence number of the report that is timed."""
    sent_at: float
    out: int
    """Reports in flight at that time, including this one: as many are committed in the time that it takes."""


@dataclass(frozen=True)
class Sending:
    """State of a lane's reports in flight."""

    round: int
    heard: int = 0
    """Last report that is known to be committed."""
    sent: int = 0
    """Last report that the stream accepted in this round, with all before it."""
    window: int = WINDOW_FIRST
    ask_at: float = 0.0
    ask_seconds: float = ASK_SECONDS_MIN
    clear: bool = False
    """True: the next question asks to clear the stream of the lane's messages."""
    round_at: float | None = None
    """Time at which a new round begins. None: none is due."""
    round_seconds: float = ROUND_SECONDS_MIN
    round_heard: int = 0
    """`heard` at the beginning of the round."""
    retry_at: float = 0.0
    retry_seconds: float = RETRY_SECONDS_MIN
    mark: Mark | None = None
    """Report that is timed; the next commit at or beyond it tells how long commits take."""
    way_seconds: float = math.inf
    """Least recent time from sending to commit."""
    way_at: float = -math.inf
    """Time of that measurement."""
    window_before: int | None = None
    """Size of the window before it was made small to measure the transfer. None: it was not."""

    @property
    def out(self) -> int:
        return self.sent - self.heard

    @property
    def room_until(self) -> int:
        """Last sequence number up to which reports may be sent."""
        return self.heard + self.window


@dataclass(frozen=True)
class Step:
    """Next action. `wait`: for a change, at most until `until`."""

    do: Literal["publish", "ask", "wait"]
    limit: int = 0
    until: float | None = None


def begin(round: int, committed: int, now: float) -> Sending:
    """State at the agent's start, or after its spool began again. `round` is a number never used before."""
    return Sending(round=round, heard=committed, sent=committed, round_heard=committed, ask_at=now)


def next_step(state: Sending, last: int, now: float, batch_max: int) -> tuple[Sending, Step]:
    """The next step of a lane. `last`: its newest report."""
    if state.round_at is not None and now >= state.round_at:
        state = _new_round(state, now)
    until = [state.round_at] if state.round_at is not None else []
    # Without reports in flight nothing can be lost, so an idle lane asks nothing.
    if state.out > 0 or state.clear:
        if now >= state.ask_at:
            return state, Step("ask")
        until.append(state.ask_at)
    limit = min(state.room_until, last) - state.sent
    if limit > 0 and state.round_at is None:  # reports behind a gap would be dropped
        if now >= state.retry_at:
            return state, Step("publish", min(limit, batch_max))
        until.append(state.retry_at)
    return state, Step("wait", until=min(until, default=None))


def published(state: Sending, through: int, complete: bool, now: float) -> Sending:
    """The stream accepted the reports up to `through`. `complete`: these are all that were sent."""
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
    """The link was lost, or the stream was made anew: the lane asks soon whether reports were lost."""
    return replace(state, retry_at=now, retry_seconds=RETRY_SECONDS_MIN, ask_at=min(state.ask_at, now + ROUND_SECONDS_MIN))


def told(state: Sending, sequence: int, resend: bool, round: int, now: float) -> Sending:
    """A message of the receiver. One without news changes nothing."""
    if sequence > state.heard:
        state = _committed(state, sequence, now)
    if resend and sequence < state.heard:
        # The message is late, or the receiver has forgotten reports: its answer to a question tells which.
        return replace(state, ask_at=min(state.ask_at, now + state.round_seconds))
    # A gap of an earlier round is answered by the round that has begun since.
    if resend and round == state.round and state.out > 0:
        return _lost(state, now)
    return state


def asked(state: Sending, now: float) -> Sending:
    """A question was sent."""
    return replace(
        state,
        ask_at=now + state.ask_seconds,
        ask_seconds=min(2 * state.ask_seconds, ASK_SECONDS_MAX),
        clear=False,
    )


def answered(state: Sending, before: Sending, sequence: int, stored: int | None, now: float) -> Sending:
    """The answer to a question that was asked in the state `before`."""
    if sequence > state.heard:
        state = _committed(state, sequence, now)
    # None: the bus could not count, which proves no loss.
    if stored is None:
        return state
    if stored > STORED_REPORTS_MAX:
        return replace(state, clear=True, ask_at=state.ask_at if before.clear else now)
    # `before.sent` and not `sent`: reports published after the question are not in its count.
    if stored == 0 and state.round == before.round and sequence < before.sent and state.out > 0:
        return _lost(state, now)
    return state


def _lost(state: Sending, now: float) -> Sending:
    # A loss that is told of again does not put off the round that is due.
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
        # Reports of an earlier round may be committed after a new one began at a lower number.
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
        return state  # this report was sent before the window was made small
    if state.window_before is not None:  # so few reports say nothing about the earlier window
        return replace(state, window=state.window_before, window_before=None)
    window = _fitting(state.window, news, mark.out, delay_seconds, state.way_seconds)
    if old and state.way_at < now:
        return replace(state, window=min(window, WAY_REPORTS), window_before=window)
    return replace(state, window=window)


def _fitting(window: int, news: int, out: int, delay_seconds: float, way_seconds: float) -> int:
    """Window whose reports take the transfer and DELAY_TARGET_SECONDS, as far as one commit can tell. Reports that did not
    fill the window are no evidence for a larger one; nor does it grow by more than was committed."""
    most_seconds = way_seconds + DELAY_TARGET_SECONDS
    fitting = int(out * most_seconds / max(delay_seconds, 1e-6))
    if delay_seconds > most_seconds:
        return min(window, max(fitting, window // 2, WINDOW_SLOW))
    if 2 * out < window:
        return window
    if delay_seconds < way_seconds + DELAY_TARGET_SECONDS / 2:
        fitting = 2 * window  # hardly anything waits
    return max(window, min(window + news, fitting, WINDOW_MAX))
