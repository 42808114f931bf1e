"""An experiment: its submission, its trials, its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from tenuto.client import notebook_html
from tenuto.client.aio.checkpoints import AsyncCheckpoint
from tenuto.client.aio.door import AsyncRestClient
from tenuto.client.aio.pauses import sleep
from tenuto.client.aio.trials import AsyncTrial, Kind, log_lines, metric_table
from tenuto.client.errors import ClientError, NotCompleted, Refused, TimedOut
from tenuto.client.events import ENDED, Event
from tenuto.client.messages import items, new_key
from tenuto.client.tables import Table, of_rows
from tenuto.client.waiting import Deadline

TRIALS_PAGE = 1_000
FIRST_TRIAL_SECONDS = 0.2
SHOWN_SECONDS_MAX = 10.0
"""Longest wait for the views: they show a recorded end within milliseconds; while they are folded anew, the event alone tells the
end."""
SHOWN_POLL_SECONDS = 0.02


class AsyncExperiment:
    """An experiment of the cluster. Its methods raise ClientError, and Refused if the cluster says no."""

    def __init__(self, door: AsyncRestClient, data: dict[str, Any]) -> None:
        self._door = door
        self.data = data
        """The experiment as the cluster last described it; only its id if it was just submitted."""

    def __repr__(self) -> str:
        return f"Experiment({self.id}, {self.data.get('state', 'submitted')})"

    def _repr_html_(self) -> str:
        """HTML of the experiment for notebooks, as the cluster last described it."""
        data = self.data
        title = f"Experiment {self.id}: {data['name']}" if "name" in data else f"Experiment {self.id}"
        best = data.get("best_trial_id")
        rows = [
            ("state", data.get("state", "submitted")),
            ("error", data.get("error")),
            ("search", f"{data['method']} for {data['metric']}" if data.get("metric") else None),
            ("trials", data.get("trials") or None),
            ("best", f"trial {best} with {data['metric']} {data['best_metric']:.6g}" if best else None),
            ("labels", ", ".join(data.get("labels") or ()) or None),
            ("note", data.get("note") or None),
            ("user", data.get("user")),
            ("submitted", notebook_html.when(data.get("submitted_us"))),
            ("ended", notebook_html.when(data.get("ended_us"))),
        ]
        return notebook_html.facts(title, rows)

    @property
    def id(self) -> int:
        """Id of the experiment: a number from 1."""
        return int(self.data["id"])

    async def reload(self) -> None:
        """Asks the cluster for `data` again."""
        self.data = await self._door.get(f"/experiments/{self.id}")

    async def state(self) -> str:
        """Present state: active, paused, canceling, completed, failed or canceled."""
        await self.reload()
        return str(self.data["state"])

    async def config(self) -> dict[str, Any]:
        """The whole configuration, defaults included."""
        if "config" not in self.data:
            await self.reload()
        return dict(self.data["config"])

    async def wait(self, *, timeout_seconds: float | None = None, check: bool = True) -> str:
        """Waits for its end; returns its state. `timeout_seconds`: longest wait; None: no limit. `check`: False: a failed or
        canceled experiment is no error. Raises NotCompleted if it failed or was canceled, and TimedOut after `timeout_seconds`:
        then it goes on.

            from tenuto import AsyncClient

            async with AsyncClient() as client:
                experiment = await client.get_experiment(3)
                print(await experiment.wait(timeout_seconds=600))
        """
        last: Event | None = None
        try:
            async for event in self.follow(timeout_seconds=timeout_seconds):
                last = event
        except TimedOut:
            message = f"Experiment {self.id} has not ended within {timeout_seconds:g} s; it goes on."
            raise TimedOut(message) from None
        assert last is not None, "what is followed to its end has one"
        state, error = ENDED[last.type], last.data.get("error")
        shown = Deadline(SHOWN_SECONDS_MAX)
        while True:  # until later requests are told so, too
            self.data = await self._door.wait_get(f"/experiments/{self.id}")
            if self.data["ended_us"] is not None or shown.over:
                break
            await sleep(SHOWN_POLL_SECONDS)
        if check and state != "completed":
            raise NotCompleted(f"Experiment {self.id} {state}{f': {error}' if error else ''}", self.id, state)
        return state

    async def follow(self, after: int = 0, *, timeout_seconds: float | None = None) -> AsyncIterator[Event]:
        """Its events behind the position `after` (0: from the first), as they come, until it has ended; a lost connection is made
        again. `timeout_seconds`: longest time; None: no limit. Raises TimedOut after it, and ClientError for an experiment of
        unmanaged runs, which has no end."""
        self.data = await self._door.wait_get(f"/experiments/{self.id}")  # says so at once if there is no such experiment
        if self.data["state"] == "unmanaged":
            raise ClientError(f"Experiment {self.id} has unmanaged runs, and no end: their programs end them one by one.")
        events = self._door.follow(after, self.id, timeout_seconds=timeout_seconds)
        try:
            async for told, _ in events:
                yield Event.of(told)
                if told["type"] in ENDED:
                    return
        finally:
            await events.aclose()

    async def await_first_trial(self, *, timeout_seconds: float | None = None) -> AsyncTrial:
        """Waits for its first trial. `timeout_seconds`: longest wait; None: no limit. Raises TimedOut after it, and NotCompleted
        if the experiment ends without any."""
        deadline = Deadline(timeout_seconds)
        while True:
            if found := items(await self._door.wait_get(f"/experiments/{self.id}/trials?limit=1")):
                return AsyncTrial(self._door, found[0])
            if (state := await self.state()) in ENDED.values():
                raise NotCompleted(f"Experiment {self.id} {state} without a trial.", self.id, state)
            if deadline.over:
                raise TimedOut(f"Experiment {self.id} has no trial after {timeout_seconds:g} s; it goes on.")
            await sleep(FIRST_TRIAL_SECONDS)

    async def list_trials(self) -> list[AsyncTrial]:
        """Its trials, by number."""
        return [AsyncTrial(self._door, data) for data in await self._trials()]

    async def get_trial(self, number: int) -> AsyncTrial:
        """Its trial with this `number`, from 1. Raises Refused if there is none."""
        return AsyncTrial(self._door, await self._door.get(f"/trials/{self.id}-{number}"))

    async def best_trial(self) -> AsyncTrial:
        """Trial with the best searcher's metric.

        Raises Refused if none was validated.

            from tenuto import AsyncClient

            async with AsyncClient() as client:
                experiment = await client.get_experiment(3)
                best = await experiment.best_trial()
                print(best.id, best.hyperparameters, best.best_metric)
        """
        await self.reload()
        if (found := self.data["best_trial_id"]) is None:
            raise Refused(f"Experiment {self.id} has no trial with a metric yet.")
        return AsyncTrial(self._door, await self._door.get(f"/trials/{found}"))

    async def trials(self) -> Table:
        """One row per trial, by number, with a column for each hyperparameter, such as `hyperparameters.lr`."""
        return of_rows(await self._trials())

    async def metrics(self, kind: Kind = "training", *, metric: str | None = None) -> Table:
        """One row per report of all trials: `trial` (its number), `batches`, `time_us`, and a column for each metric. `kind`:
        training or validation. `metric`: only this one; None: all."""
        return await metric_table(self._door, self.id, kind, None, metric)

    async def validations(self) -> Table:
        """One row per validation of all trials, like `metrics`."""
        return await self.metrics("validation")

    async def logs(self, *, tail: int | None = None) -> AsyncIterator[str]:
        """Lines of all its workers, in the order of arrival. `tail`: this many of the last ones only; None: all."""
        async for line in log_lines(self._door, f"/experiments/{self.id}", tail):
            yield line

    async def list_checkpoints(self) -> list[AsyncCheckpoint]:
        """Checkpoints of its trials that are kept."""
        found = items(await self._door.get(f"/experiments/{self.id}/checkpoints"))
        return [AsyncCheckpoint(self._door, data) for data in found]

    async def best_checkpoint(self) -> AsyncCheckpoint:
        """Kept checkpoint with the best searcher metric. Raises Refused if there is none."""
        await self.reload()
        if (found := self.data["best_checkpoint_id"]) is None:
            raise Refused(f"Experiment {self.id} has no checkpoint yet.")
        return AsyncCheckpoint(self._door, await self._door.get(f"/checkpoints/{found}"))

    top_checkpoint = best_checkpoint
    """Same as `best_checkpoint`: the name in Determined."""

    async def pause(self) -> None:
        """Pauses it: its workers save a checkpoint and leave; nothing new starts until it is resumed. Raises Refused if it has
        ended or is being canceled."""
        await self._ask("pause")

    async def resume(self) -> None:
        """Resumes it: its trials go on from their last checkpoints. Raises Refused if it has ended or is being canceled."""
        await self._ask("resume")

    activate = resume
    """Same as `resume`: the name in Determined."""

    async def cancel(self) -> None:
        """Ends it; running workers save a checkpoint first. Raises Refused if it has ended."""
        await self._ask("cancel")

    async def kill(self) -> None:
        """Ends it at once, without a last checkpoint. Raises Refused if it has ended."""
        await self._ask("kill")

    async def change(self, **settings: Any) -> None:
        """Changes `settings`: priority, weight, max_slots, max_wall_hours, pool, max_trials or max_concurrent_trials. Raises
        Refused for others, for wrong values, and if it has ended or is being canceled."""
        await self._door.patch(f"/experiments/{self.id}", settings)

    async def archive(self) -> None:
        """Hides it from lists, once it has ended. Nothing of it is deleted. Raises Refused if it has not ended."""
        await self._ask("archive")

    async def unarchive(self) -> None:
        """Shows it in lists again."""
        await self._ask("unarchive")

    async def delete(self, *, now: bool = False) -> None:
        """Deletes it, once it has ended, with its checkpoints, metrics, log lines and code, after the cluster's grace time.
        `now`: True: at once, so that it cannot be taken back. Raises Refused if it has not ended."""
        await self._door.delete(f"/experiments/{self.id}{'?now=true' if now else ''}")

    async def undelete(self) -> None:
        """Takes back its deletion. Raises Refused if the grace time is over."""
        await self._ask("undelete")

    async def fork(self, overrides: Mapping[str, Any] | None = None) -> AsyncExperiment:
        """Runs it again with the same code and seed, and other settings. `overrides`: in the shape of a configuration; None:
        none. Returns the new experiment. Raises Refused if the configuration is wrong with them."""
        return await self._derive("fork", {"overrides": dict(overrides or {})})

    async def continue_(self, overrides: Mapping[str, Any] | None = None, *, trust: bool = False) -> AsyncExperiment:
        """Continues it, once it has ended, from its trials' last checkpoints: longer, or with more trials. `overrides`: in the
        shape of a configuration; None: none. `trust`: True: load checkpoints that another user's trials pickled. Returns the new
        experiment. Raises Refused if it has not ended."""
        return await self._derive("continue", {"overrides": dict(overrides or {}), "trust": trust})

    async def reproduce(self, trial_id: str | None = None, *, trust: bool = False) -> AsyncExperiment:
        """Runs one of its trials again from the record alone. `trial_id`: such as 3-7; None: the best. `trust`: True: load
        checkpoints that another user's trials pickled. Returns the new experiment."""
        return await self._derive("reproduce", {"trial_id": trial_id, "trust": trust})

    async def reproduction(self) -> dict[str, Any]:
        """Comparison of a reproduction with its original: `equal` is True if it came to the same metrics and weights (None: not
        known yet); with the differences. Raises Refused if it reproduces no other."""
        return dict(await self._door.get(f"/experiments/{self.id}/reproduction"))

    async def _trials(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["number"] if found else 0
            page = items(await self._door.get(f"/experiments/{self.id}/trials", after=after, limit=TRIALS_PAGE))
            found += page
            if len(page) < TRIALS_PAGE:
                return found

    async def _ask(self, verb: str) -> None:
        await self._door.post(f"/experiments/{self.id}/{verb}")

    async def _derive(self, verb: str, body: dict[str, Any]) -> AsyncExperiment:
        answer = await self._door.post(f"/experiments/{self.id}/{verb}", body, key=new_key())
        return AsyncExperiment(self._door, answer)
