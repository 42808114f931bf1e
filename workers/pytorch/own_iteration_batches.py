"""Batches of a loader whose class has an iteration of its own, from a position on.

What such an iteration gives may depend on all that it gave before in the same pass. So a resumed trial begins its pass again,
with the loader's attributes as they were then, and drops the batches that were trained: as exact as the iteration itself, for the
time of making them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch.own_iteration import UsersPass, attributes_of
from tenuto.workers.pytorch.seeds import derive_seed, isolated_randomness

Begin = Callable[[int], Iterator[Any]]
"""Function from a position among the sampler's batches to these, without end."""
ELSEWHERE = (
    "{loader}.__iter__ does not take its batches from torch's DataLoader.__iter__ in each epoch, so their order is not Tenuto's, "
    "and a resumed trial trains others; take them from super().__iter__()"
)


class UsersPasses:
    """Batches without end, pass after pass. `again`: the batch before this position, if it was made again."""

    def __init__(
        self,
        loader: DataLoader[Any],
        seed: int,
        sampled: Begin,
        sampled_batches: int,
        start_batches: int = 0,
        resume: dict[str, Any] | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`sampled_batches`: batches of an epoch that the sampler gives. `resume`: result of `state`; None: the loader was not
        used yet."""
        self._loader, self._seed, self._sampled, self._sampled_batches, self._note = loader, seed, sampled, sampled_batches, note
        self._name, self._epoch_batches = type(loader).__name__, len(loader)
        self._kept = attributes_of(loader)
        self._epoch, trained = divmod(start_batches, self._epoch_batches)
        self._in_pass = 0
        self._pass: UsersPass | None = None
        self._ahead: Iterator[Any] | None = None
        self._ahead_at = -1
        """Position of `_ahead` among the sampler's batches."""
        if resume is not None:
            self._kept.restore(resume["begun"])
        self._begun = self._kept.state()
        self.again: Any = None
        for _ in range(trained):
            self.again = next(self)

    def __iter__(self) -> UsersPasses:
        return self

    def __next__(self) -> Any:
        if self._pass is None:
            self._begun = self._kept.state()
            self._pass = UsersPass(self._loader, self._begin)
        batch = self._make()
        self._in_pass += 1
        if self._in_pass == 1 and not self._pass.asked:
            self._note(ELSEWHERE.format(loader=self._name))
        if self._in_pass == self._epoch_batches:
            self._end()
        return batch

    def state(self) -> dict[str, Any]:
        """State between two batches."""
        return {"begun": self._begun if self._in_pass else self._kept.state()}

    @property
    def sampled_position(self) -> int:
        """Position among the sampler's batches: in this pass, or at its beginning."""
        return self._epoch * self._sampled_batches + min(self._in_pass, 1)

    def _make(self) -> Any:
        assert self._pass is not None
        with isolated_randomness(derive_seed(self._seed, "epoch", self._epoch, "batch", self._in_pass), cuda=True):
            try:
                return next(self._pass)
            except StopIteration:
                raise self._refusal(str(self._in_pass)) from None

    def _end(self) -> None:
        """Lets the user's code come to the end of its pass, as a loop over the loader does."""
        assert self._pass is not None
        with isolated_randomness(derive_seed(self._seed, "epoch", self._epoch, "end"), cuda=True):
            if next(self._pass, self) is not self:
                raise self._refusal("more")
        self._pass, self._in_pass, self._epoch = None, 0, self._epoch + 1

    def _refusal(self, given: str) -> UserError:
        return UserError(
            f"{self._name} gave {given} batches in epoch {self._epoch}, but its length is {self._epoch_batches}; both must be "
            "equal, and equal in every epoch: give it a __len__ that says how many batches its __iter__ gives.",
            at=type(self._loader),
        )

    def _begin(self) -> Iterator[Any]:
        """The sampler's batches of this epoch. Loader workers live on, from epoch to epoch, if all were taken."""
        first = self._epoch * self._sampled_batches
        if self._ahead is None or self._ahead_at != first:
            self._ahead, self._ahead_at = self._sampled(first), first
        ahead = self._ahead
        for _ in range(self._sampled_batches):
            if self._ahead is not ahead:
                return  # the pass was begun anew
            self._ahead_at += 1
            yield next(ahead)
