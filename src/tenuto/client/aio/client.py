"""The client: one object for a cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

from tenuto.client import waiting
from tenuto.client.aio.checkpoints import AsyncCheckpoint
from tenuto.client.aio.door import AsyncRestClient
from tenuto.client.aio.experiments import AsyncExperiment
from tenuto.client.aio.pauses import aside
from tenuto.client.aio.trials import AsyncTrial
from tenuto.client.events import Event
from tenuto.client.messages import items
from tenuto.client.submitting import Config, prepare
from tenuto.client.target import Target
from tenuto.client.waiting import Notice

EXPERIMENTS_PAGE = 1_000


class AsyncClient(AsyncRestClient):
    """Talks to a cluster's REST door. Raises ClientError, whose text is one sentence.

    Use it in one thread at a time, best in a `with` block, at whose end its connections are closed.

        from tenuto import AsyncClient

        async with AsyncClient() as client:
            for experiment in await client.list_experiments(state="completed", limit=10):
                print(experiment.id, await experiment.config())
    """

    def __init__(
        self,
        url: str | Target | None = None,
        token: str | None = None,
        *,
        data_dir: str | None = None,
        patience_seconds: float = waiting.PATIENCE_SECONDS,
        notice: Notice = lambda text: None,
    ) -> None:
        """Client of the cluster at `url`, else TENUTO_URL, with `token`, else TENUTO_TOKEN or TENUTO_TOKEN_FILE, else that of
        `tenuto login`; else of the cluster on this machine, of `data_dir` (None: the one of the command line).

        `patience_seconds`: longest time for which a request that may be sent again is tried while the cluster is unreachable.
        `notice` is told when something that waits has lost the cluster, and when it is reachable again. Raises ClientError if
        there is neither an address nor a cluster on this machine, or no token.
        """
        target = url if isinstance(url, Target) else Target.find(data_dir, url, token)
        super().__init__(target, patience_seconds=patience_seconds, notice=notice)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    async def create_experiment(
        self, config: Config, model_dir: str | Path | None = None, *, idempotency_key: str | None = None
    ) -> AsyncExperiment:
        """Submits an experiment.

        `config`: a dict in the shape of a configuration, or the path of its YAML file. `model_dir`: the directory with the
        model's code; None: all of it is installed where the workers run. `idempotency_key`: the same one again gives the same
        experiment; None: a new one. Raises Refused, with all faults of the configuration in `problems`, and ClientError if a file
        cannot be read or the directory is too large.

            from tenuto import AsyncClient

            config = {
                "name": "line",
                "entrypoint": "train.py",
                "hyperparameters": {"rate": {"type": "log", "base": 10, "minval": -3, "maxval": -1}},
                "searcher": {"name": "random", "metric": "loss", "max_trials": 2, "max_length": {"batches": 200}},
            }
            async with AsyncClient() as client:
                experiment = await client.create_experiment(config, model_dir="model")
                print(experiment.id, await experiment.wait())
        """
        made = await aside(lambda: prepare(config, model_dir))
        with made.context:
            answer = await self.submit(made.config, made.context, made.context_bytes, made.origin, key=idempotency_key)
        return AsyncExperiment(self, answer)

    async def get_experiment(self, experiment_id: int) -> AsyncExperiment:
        """Experiment of this id.

        Raises Refused if there is none.

            from tenuto import AsyncClient

            async with AsyncClient() as client:
                experiment = await client.get_experiment(3)
                print(await experiment.state())
        """
        return AsyncExperiment(self, await self.get(f"/experiments/{experiment_id}"))

    async def list_experiments(
        self, *, state: str | None = None, limit: int | None = None, **search: Any
    ) -> list[AsyncExperiment]:
        """Experiments, the newest first. `state`: only those that are active, paused, canceling, completed, failed or canceled;
        None: all. `limit`: most of them; None: no limit. `search`: other parameters of `GET /experiments`, such as name, label,
        user, hyperparameter="lr<0.1", metric_below, sort and order. Raises Refused for an unknown one."""
        found: list[dict[str, Any]] = []
        page_limit = EXPERIMENTS_PAGE if limit is None else min(EXPERIMENTS_PAGE, limit)
        async for page in self.pages("/experiments", state=state, limit=page_limit, **search):
            found += page
            if limit is not None and len(found) >= limit:
                break
        return [AsyncExperiment(self, data) for data in found[:limit]]

    async def get_trial(self, trial_id: str) -> AsyncTrial:
        """Trial of this id, such as 3-7, the seventh of experiment 3. Raises Refused if there is none."""
        return AsyncTrial(self, await self.get(f"/trials/{trial_id}"))

    async def get_checkpoint(self, checkpoint_id: str) -> AsyncCheckpoint:
        """Checkpoint of this id. Raises Refused if there is none."""
        return AsyncCheckpoint(self, await self.get(f"/checkpoints/{checkpoint_id}"))

    async def diff(self, a: int | str, b: int | str) -> dict[str, Any]:
        """Differences between two experiments (such as 3) or trials (such as "3-1"), `a` and `b`: a dict with `differences`, the
        likely cause of other results first, `results` and `gaps` (what could not be compared). Raises Refused if one does not
        exist."""
        return dict(await self.get("/diff", a=a, b=b))

    async def queue(self, pool: str | None = None) -> dict[str, Any]:
        """Experiments that hold slots of each pool or wait for some, in the order of the queue, each with the reason: a dict with
        `pools`. `pool`: only this one; None: all."""
        return dict(await self.get("/jobs", pool=pool))

    async def list_agents(self) -> list[dict[str, Any]]:
        """Machines that offer slots, each as the cluster describes it, with `id`, `pool`, `state` and `slots`."""
        return items(await self.get("/agents"))

    async def status(self) -> dict[str, Any]:
        """State of the cluster: a dict with `version`, `head` (position of the last event), `agents`, `slots`, `slots_used` and
        troubles of its parts."""
        return dict(await self.get("/status"))

    async def whoami(self) -> dict[str, Any]:
        """User of this token: a dict with `name`, `admin`, `permissions` and `token`, with the time at which that ends."""
        return dict(await self.get("/user"))

    async def events(
        self,
        after: int = 0,
        *,
        experiment: int | None = None,
        types: Collection[str] | None = None,
        follow: bool = True,
        timeout_seconds: float | None = None,
    ) -> AsyncIterator[Event]:
        """Events behind the position `after` (0: from the first), in order, as they come: for ever, or with `follow=False` those
        that are recorded by now. A lost connection is made again. Note the `position` of the last event that you have handled,
        and begin there next time: none is missed, and none comes twice. `experiment`: only those of the experiment with this id;
        None: all. `types`: only these; None: all. `timeout_seconds`: longest time; None: no limit. Raises TimedOut after it."""
        wanted = None if types is None else frozenset(types)
        if not follow:
            async for body in self.event_bodies(after, experiment=experiment):
                event = Event.of(json.loads(body))
                if wanted is None or event.type in wanted:
                    yield event
            return
        live = self.follow(after, experiment, timeout_seconds=timeout_seconds)
        try:
            async for told, _ in live:
                if wanted is None or told["type"] in wanted:
                    yield Event.of(told)
        finally:
            await live.aclose()
