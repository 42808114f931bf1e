"""The client against a real gateway: both forms of it, what it sends again, what it says, and tables."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import numpy
import pytest

from tenuto.client import AsyncClient, Away, Client, ClientError, Interrupted, Refused, Target, TimedOut, Unreachable, waiting
from tenuto.schemas.events.search import ExperimentCompleted
from tests.support.gateway_world import WHY, World, gateway_world, requested, validated
from tests.support.metric_points import store_columns

T = TypeVar("T")
CONFIG = {
    "name": "line",
    "entrypoint": "model_def:Trial",
    "searcher": {"name": "single", "metric": "accuracy", "smaller_is_better": False, "max_length": {"batches": 100}},
}


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        yield made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "model_def.py").write_text("class Trial: ...\n")
    return directory


def target(world: World) -> Target:
    return Target(str(world.http.base_url), world.http.headers["Authorization"].removeprefix("Bearer "), "a test")


async def apart(work: Callable[[], T]) -> T:
    """The blocking client, beside the gateway's loop."""
    return await asyncio.to_thread(work)


async def test_both_clients_submit_and_read_the_same(world: World, model: Path) -> None:
    with Client(target(world)) as client:
        first = await apart(lambda: client.create_experiment(CONFIG, model, idempotency_key="once"))
        again = await apart(lambda: client.create_experiment(CONFIG, model, idempotency_key="once"))
        assert first.id == again.id == 1
        assert (await apart(first.config))["name"] == "line"
        await world.record(requested(1), requested(2), validated(10, accuracy=0.5), validated(20, accuracy=math.nan))
        rows = (await apart(first.trials)).columns
        assert (rows["id"], rows["hyperparameters.lr"]) == (["1-1", "1-2"], [0.1, 0.1])
        assert [trial.number for trial in await apart(first.list_trials)] == [1, 2]
        with pytest.raises(Refused, match="Trial 1-1 has no checkpoint yet"):
            await apart((await apart(first.await_first_trial)).latest_checkpoint)

    async with AsyncClient(target(world)) as other:
        second = await other.create_experiment(CONFIG, model)
        assert second.id == 2
        assert [item.id for item in await other.list_experiments()] == [2, 1]
        assert [item.id for item in await other.list_experiments(limit=1)] == [2]
        trial = await other.get_trial("1-1")
        assert trial.hparams == {"lr": 0.1}
        table = await trial.validations()
        assert table.columns["batches"].tolist() == [10, 20]
        assert [line async for line in trial.logs()] == []
        with pytest.raises(Refused) as missing:
            await other.get_experiment(7)
        assert (missing.value.word, missing.value.status) == ("not_found", 404)
        assert (await other.diff(1, 2))["a"] is not None
        await second.pause()
        assert await second.state() == "paused"


async def test_all_that_is_wrong_is_told(world: World, model: Path) -> None:
    client = Client(target(world))
    wrong = CONFIG | {"searcher": {"name": "randm"}, "max_restarts": -1}
    with pytest.raises(Refused) as refused:
        await apart(lambda: client.create_experiment(wrong, model))
    assert {problem["path"] for problem in refused.value.problems} >= {"searcher.name", "max_restarts"}
    assert refused.value.path in {"searcher.name", "max_restarts"}
    with pytest.raises(ClientError, match="cannot be sent as JSON"):
        await apart(lambda: client.create_experiment({"name": object()}, model))
    with pytest.raises(ClientError, match="is not a directory"):
        await apart(lambda: client.create_experiment(CONFIG, model / "nowhere"))
    with pytest.raises(ClientError, match="refused the token from a stranger"):
        await apart(lambda: Client(Target(client.url, "wrong", "a stranger")).status())
    assert "wrong" not in repr(Target(client.url, "wrong", "a stranger"))


@pytest.mark.parametrize("kind", ["blocking", "asynchronous"])
async def test_events_go_on_where_the_program_was(world: World, model: Path, kind: str) -> None:
    await world.submit()
    await world.record(
        requested(1),
        requested(2),
        ExperimentCompleted(experiment_id=1, best_trial_id=None, best_metric=None, trials=2, reason=WHY),
    )

    async def seen(after: int, count: int | None = None, **options: Any) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        async with AsyncClient(target(world)) as client:
            async for event in client.events(after, **options):
                found.append((event.position, event.type))
                if len(found) == count:
                    break
        return found

    def seen_blocking(after: int, count: int | None = None, **options: Any) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        for event in Client(target(world)).events(after, **options):
            found.append((event.position, event.type))
            if len(found) == count:
                break
        return found

    async def read(after: int, count: int | None = None, **options: Any) -> list[tuple[int, str]]:
        if kind == "blocking":
            return await apart(lambda: seen_blocking(after, count, **options))
        return await seen(after, count, **options)

    everything = await read(0, follow=False)
    assert [position for position, _ in everything] == list(range(1, len(everything) + 1))
    first = await read(0, 2)
    assert first + await read(first[-1][0], len(everything) - 2) == everything
    only = await read(0, follow=False, types=["TrialRequested"], experiment=1)
    assert [name for _, name in only] == ["TrialRequested"] * 2
    with pytest.raises(TimedOut):
        await read(everything[-1][0], timeout_seconds=0.3)


async def test_tables_are_frames(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    await world.submit()
    await world.record(requested(1))
    numbers = numpy.arange(1, 600_001)
    await store_columns(world.log.pool, 1, {"loss": numbers, "trial": numpy.full(600_000, 7)})
    client = Client(target(world))
    experiment = await apart(lambda: client.get_experiment(1))
    table = await apart(experiment.metrics)
    assert len(table) == 600_000, "three pages"
    frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["trial", "batches", "time_us", "loss", "metrics.trial"]
    assert (frame["loss"] == frame["batches"]).all()
    assert isinstance(table.to_arrow(), pyarrow.Table)
    assert len(await apart(lambda: experiment.metrics("validation"))) == 0
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ClientError, match=r"pandas cannot be imported .*; install it: pip install 'tenuto\[frames\]'.$"):
        table.to_pandas()


class Flaky(BaseHTTPRequestHandler):
    answers: list[int]
    seen: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        self.seen.append((self.command, self.headers["Idempotency-Key"]))
        status = self.answers.pop(0) if self.answers else 200
        if status == 0:
            self.close_connection = True
            return
        text = b'{"id": 3, "state": "active"}' if status < 400 else b'{"error": {"code": "unavailable", "message": "Not now."}}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_only_what_may_be_sent_twice_is(kind: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PAUSE_SECONDS_MIN", 0.001)
    Flaky.answers, Flaky.seen = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Flaky)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        async with _open(kind(Target(url, "secret", "a test"))) as client:

            async def call(work: Callable[[], Any]) -> Any:
                return await work() if kind is AsyncClient else await apart(work)

            Flaky.answers[:] = [503, 429, 0]
            assert (await call(client.status))["id"] == 3
            assert len(Flaky.seen) == 4
            Flaky.seen.clear()
            Flaky.answers[:] = [0, 503]
            experiment = await call(lambda: client.create_experiment(CONFIG, model))
            assert experiment.id == 3
            keys = {key for _, key in Flaky.seen}
            assert (len(Flaky.seen), len(keys), None in keys) == (3, 1, False)
            for answer, error in ((503, Away), (0, Interrupted)):
                Flaky.seen.clear()
                Flaky.answers[:] = [answer]
                with pytest.raises(error):
                    await call(experiment.pause)
                assert Flaky.seen == [("POST", None)], "it may have been carried out"
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(Unreachable, match="cannot be reached: it does not answer"):
        async with _open(kind(Target(url, "secret", "a test"))) as client:
            await call(client.status)


class _open:  # noqa: N801
    """Either client, in an asynchronous test."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __aenter__(self) -> Any:
        return self.client

    async def __aexit__(self, *_: object) -> None:
        closed = self.client.close()
        if closed is not None:
            await closed
