"""A trial: one configuration of an experiment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

from tenuto.client import notebook_html
from tenuto.client.aio.checkpoints import AsyncCheckpoint, best
from tenuto.client.aio.door import AsyncRestClient
from tenuto.client.errors import Refused
from tenuto.client.messages import items
from tenuto.client.tables import Pages, Table

Kind = Literal["training", "validation"]
LINES_MAX = 10_000
"""Most lines of one answer."""


class AsyncTrial:
    """A trial: one configuration of an experiment. Its methods raise ClientError, and Refused if the cluster says no."""

    def __init__(self, door: AsyncRestClient, data: dict[str, Any]) -> None:
        self._door = door
        self.data = data
        """The trial as the cluster last described it."""

    def __repr__(self) -> str:
        return f"Trial({self.id!r}, {self.state})"

    def _repr_html_(self) -> str:
        """HTML of the trial for notebooks, as the cluster last described it."""
        data = self.data
        rows = [
            ("state", self.state),
            ("error", self.error),
            ("batches", data["batches"]),
            ("best metric", self.best_metric),
            *((f"hyperparameters.{name}", value) for name, value in self.hyperparameters.items()),
            ("last decision", data.get("reason") or None),
            ("requested", notebook_html.when(data["requested_us"])),
            ("ended", notebook_html.when(data["ended_us"])),
        ]
        return notebook_html.facts(f"Trial {self.id}", rows)

    @property
    def id(self) -> str:
        """Id of the trial, such as 3-7: the seventh of experiment 3."""
        return str(self.data["id"])

    @property
    def experiment_id(self) -> int:
        """Experiment that it belongs to."""
        return int(self.data["experiment_id"])

    @property
    def number(self) -> int:
        """Number of the trial in its experiment, from 1."""
        return int(self.data["number"])

    @property
    def state(self) -> str:
        """State: queued, starting, running, paused, stopping, completed, early_stopped, failed or canceled."""
        return str(self.data["state"])

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Values of the trial by name; a group is a dict."""
        return dict(self.data["hyperparameters"])

    hparams = hyperparameters
    """Same as `hyperparameters`: the name in Determined."""

    @property
    def best_metric(self) -> float | None:
        """The best value of the searcher's metric so far; None: not validated yet."""
        value = self.data["best_metric"]
        return None if value is None else float(value)

    @property
    def error(self) -> str | None:
        """Text of its last error; None: it has none."""
        return None if self.data["error"] is None else str(self.data["error"])

    async def reload(self) -> None:
        """Asks the cluster for `data` again."""
        self.data = await self._door.get(f"/trials/{self.id}")

    async def metrics(self, kind: Kind = "training", *, metric: str | None = None) -> Table:
        """One row per report, by batches: `trial`, `batches`, `time_us`, and a column for each metric. `kind`: training or
        validation. `metric`: only this one; None: all."""
        return await metric_table(self._door, self.experiment_id, kind, self.number, metric)

    async def validations(self) -> Table:
        """One row per validation, like `metrics`."""
        return await self.metrics("validation")

    async def logs(self, *, tail: int | None = None) -> AsyncIterator[str]:
        """Lines of its workers, in the order of arrival. `tail`: this many of the last ones only; None: all."""
        async for line in log_lines(self._door, f"/trials/{self.id}", tail):
            yield line

    async def list_checkpoints(self) -> list[AsyncCheckpoint]:
        """Checkpoints that are kept, the earliest first."""
        query: dict[str, Any] = {"experiment": self.experiment_id, "trial": self.id}
        return [AsyncCheckpoint(self._door, data) for data in items(await self._door.get("/checkpoints", **query))]

    async def best_checkpoint(self) -> AsyncCheckpoint:
        """Kept checkpoint with the best searcher metric. Raises Refused if none was validated."""
        found = best(await self.list_checkpoints(), smaller_is_better=await self._smaller_is_better())
        if found is None:
            raise Refused(f"Trial {self.id} has no checkpoint with a metric yet.")
        return found

    async def latest_checkpoint(self) -> AsyncCheckpoint:
        """Its last checkpoint. Raises Refused if it has none."""
        found = await self.list_checkpoints()
        if not found:
            raise Refused(f"Trial {self.id} has no checkpoint yet.")
        return found[-1]

    async def _smaller_is_better(self) -> bool:
        return bool((await self._door.get(f"/experiments/{self.experiment_id}"))["smaller_is_better"])


async def metric_table(door: AsyncRestClient, experiment_id: int, kind: Kind, trial: int | None, metric: str | None) -> Table:
    pages, after, more = Pages(), (0, -1), True
    query: dict[str, Any] = {"kind": kind, "trial": trial, "metric": metric}
    while more:
        query |= {"after_trial": after[0], "after_batches": after[1]}
        body, more = await door.fetch(f"/experiments/{experiment_id}/metrics/table", **query)
        after = pages.add(body)
    return pages.table()


async def log_lines(door: AsyncRestClient, path: str, tail: int | None) -> AsyncIterator[str]:
    if tail is not None:
        for line in items(await door.get(f"{path}/logs", limit=tail, tail="true")):
            yield line["text"]
        return
    after, more = 0, True
    while more:
        lines = items(await door.get(f"{path}/logs", after=after, limit=LINES_MAX))
        for line in lines:
            yield line["text"]
        more = bool(lines)
        after = lines[-1]["line"] if lines else after
