"""Limit on guesses at passwords: of one user, and from one address. Pure; the caller gives the time.

A try counts as failed before the password is compared, so that many at once are no way round it, and is forgiven where it was
right.
"""

from __future__ import annotations

from collections.abc import Hashable

USER_FREE = 5
"""Failed tries of one user before each further one waits: people mistype."""
ADDRESS_FREE = 20
"""Failures allowed to one address, for all users: an office may be behind one."""
FIRST_WAIT_SECONDS = 1.0
"""Wait after the free failures; each further one doubles it ..."""
WAIT_SECONDS_MAX = 300.0
"""... up to this: 288 guesses a day, and a user who mistyped waits no longer."""
FORGET_SECONDS = 3_600.0
"""Time without a try after which earlier failures count no more."""
KEPT_MAX = 10_000
"""Most names and addresses with failures that are remembered at once: the longest quiet are forgotten first."""
KNOWN_SECONDS = 30 * 24 * 3_600.0
"""Time after a sign-in during which tries of that user from that address have a count of their own: guesses of strangers do not
keep out the user."""


class _Failures:
    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count, self.last = 0, 0.0

    def wait(self, free: int, now: float) -> float:
        """Seconds until the next try may be made; 0: now."""
        if self.count < free:
            return 0.0
        doublings = min(self.count - free, 20)
        return max(0.0, self.last + min(WAIT_SECONDS_MAX, FIRST_WAIT_SECONDS * 2.0**doublings) - now)


class Throttle:
    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._failures: dict[Hashable, _Failures] = {}
        self._known: dict[tuple[str, str], float] = {}

    def __len__(self) -> int:
        return len(self._failures) + len(self._known)

    def begin(self, user: str, address: str, now: float) -> float:
        """Seconds until the password may be compared, in which case the try does not count; 0: now, and the try counts as failed
        until `forgive`. `now`: seconds of a clock that never goes back. The answer is the same whether or not there is such a
        user."""
        of = ((self._of_user(user, address, now), USER_FREE), (("address", address), ADDRESS_FREE))
        found = [(self._found(key, now), free) for key, free in of]
        if wait := max((failures.wait(free, now) for failures, free in found if failures is not None), default=0.0):
            return wait
        for key, _ in of:
            failures = self._failures.pop(key, None) or _Failures()
            failures.count, failures.last = failures.count + 1, now
            self._failures[key] = failures  # the last in order: the first are those that were quiet for longest
        while len(self._failures) > self._kept_max:
            del self._failures[next(iter(self._failures))]
        return 0.0

    def forgive(self, user: str, address: str, now: float) -> None:
        """Forgives the try, since the password was right."""
        self._failures.pop(self._of_user(user, address, now), None)
        if (failures := self._failures.get(("address", address))) is not None:
            failures.count -= 1
        self._known.pop((user, address), None)
        self._known[user, address] = now
        while len(self._known) > self._kept_max:
            del self._known[next(iter(self._known))]

    def _of_user(self, user: str, address: str, now: float) -> Hashable:
        since = self._known.get((user, address))
        known = since is not None and now - since < KNOWN_SECONDS
        return ("user", user, address) if known else ("user", user)

    def _found(self, key: Hashable, now: float) -> _Failures | None:
        failures = self._failures.get(key)
        if failures is not None and now - failures.last >= FORGET_SECONDS:
            del self._failures[key]
            return None
        return failures
