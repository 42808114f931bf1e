"""The endpoint for Prometheus and probes: what it answers, and what a scraper that is slow or hostile cannot do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from tenuto.kernel.monitoring import catalogue, endpoint
from tenuto.kernel.monitoring.endpoint import CONNECTIONS_PER_ADDRESS_MAX, MonitoringEndpoint
from tenuto.kernel.monitoring.sampling import OTHERS, POOLS_SHOWN_MAX, MonitoredState, Sample, Sampler, by_pool, shown_pools
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.tasks import stop_task
from tests.support.waiting import SECONDS_MAX


class World:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.endpoint = MonitoringEndpoint(self.registry)
        self.reason = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[httpx.AsyncClient]:
        listener = self.endpoint.listen("127.0.0.1", 0)
        task = asyncio.create_task(self.endpoint.run(listener))
        base = f"http://127.0.0.1:{self.endpoint.port}"
        try:
            async with httpx.AsyncClient(base_url=base, timeout=SECONDS_MAX) as http:
                yield http
        finally:
            await stop_task(task)

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.endpoint.port)


async def test_probes_say_whether_the_service_lives_and_is_ready() -> None:
    world = World()
    async with world.running() as http:
        assert (await http.get("/healthz")).status_code == 200
        starting = await http.get("/readyz")
        assert (starting.status_code, "is starting" in starting.text) == (503, True)
        world.endpoint.watched = MonitoredState(lambda: world.reason)
        assert (await http.get("/readyz")).status_code == 200
        world.reason = "The event log cannot be written."
        not_ready = await http.get("/readyz")
        assert (not_ready.status_code, not_ready.text) == (503, "The event log cannot be written.\n")
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/secrets")).status_code == 404
        assert (await http.post("/metrics", content=b"x" * 100_000)).status_code == 405


async def test_metrics_and_probe_tell_the_same_readiness_at_any_moment() -> None:
    """A service that has just become ready is ready in the metrics, too, and not only at the next look of a timer."""
    world = World()
    async with world.running() as http:

        async def told() -> tuple[int, float | None]:
            families = text_string_to_metric_families((await http.get("/metrics")).text)
            [value] = [sample.value for family in families for sample in family.samples if sample.name == catalogue.READY.name]
            return (await http.get("/readyz")).status_code, value

        assert await told() == (503, 0.0), "before the service is composed"
        world.reason = "The service reads the event log."
        world.endpoint.watched = MonitoredState(lambda: world.reason)
        assert await told() == (503, 0.0)
        world.reason = ""
        assert await told() == (200, 1.0)
        world.reason = "The event log cannot be written."
        assert await told() == (503, 0.0)


async def test_both_formats_of_prometheus_are_given_and_nothing_of_the_request_is_repeated() -> None:
    world = World()
    Counter("tenuto_some_total", "Some.", registry=world.registry).inc(3)
    async with world.running() as http:
        plain = await http.get("/metrics")
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        samples = [sample for family in text_string_to_metric_families(plain.text) for sample in family.samples]
        assert [sample.value for sample in samples if sample.name == "tenuto_some_total"] == [3.0]
        for accept in ("application/openmetrics-text;version=1.0.0,*/*;q=0.1", "application/openmetrics-text; version=666;x=y"):
            answer = await http.get("/metrics", headers={"Accept": accept})
            assert answer.text.endswith("# EOF\n")
            assert "666" not in answer.headers["content-type"]
        for index in range(30):
            await http.get(
                "/metrics", headers={"Accept": f"application/openmetrics-text;version={index}.{index}.0;escaping=e{index}"}
            )
        assert len(world.endpoint._rendered) == 2


async def test_connections_that_are_held_keep_nobody_out() -> None:
    """A probe that gets no answer would have the service started again."""
    world = World()
    async with world.running():
        held = [await world.connection() for _ in range(3 * CONNECTIONS_PER_ADDRESS_MAX)]
        for _, writer in held[::2]:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{world.endpoint.port}",
            timeout=SECONDS_MAX,
            transport=httpx.AsyncHTTPTransport(local_address="127.0.0.8"),
        ) as elsewhere:
            assert (await elsewhere.get("/healthz")).status_code == 200
        assert len(endpoint._OPEN) <= CONNECTIONS_PER_ADDRESS_MAX + 1
        # Those too many are closed, with nothing said.
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(held[-1][0].read(), SECONDS_MAX) == b""
        for _, writer in held:
            writer.close()
    assert not endpoint._OPEN


async def test_a_scraper_that_comes_again_replaces_its_forgotten_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "HELD_SECONDS_MIN", 0.0)
    world = World()
    async with world.running() as http:
        held = [await world.connection() for _ in range(2 * CONNECTIONS_PER_ADDRESS_MAX)]
        assert (await http.get("/metrics")).status_code == 200
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(held[0][0].read(), SECONDS_MAX) == b""
        for _, writer in held:
            writer.close()


async def test_a_flood_is_answered_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ANSWERS_PER_SECOND_MAX", 20)
    world = World()
    async with world.running():
        loop = asyncio.get_running_loop()
        clients = [httpx.AsyncClient(base_url=f"http://127.0.0.1:{world.endpoint.port}", timeout=SECONDS_MAX) for _ in range(8)]
        begun = loop.time()
        await asyncio.gather(*(_ask(client, 10) for client in clients))
        took = loop.time() - begun
        for client in clients:
            await client.aclose()
    # A lower bound, which no slow machine breaks: a second's worth may come at once.
    assert took > (8 * 10 - 20 - 1) / 20


async def _ask(client: httpx.AsyncClient, times: int) -> None:
    for _ in range(times):
        assert (await client.get("/metrics")).status_code == 200


async def test_a_source_that_fails_or_hangs_is_left_out_and_the_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.kernel.monitoring.sampling.SOURCE_SECONDS_MAX", 0.2)
    registry = CollectorRegistry()
    sampler = Sampler(registry)
    failing = True

    async def parked() -> list[Sample]:
        if failing:
            raise OSError("postgresql://tenuto:secret@db is away")
        return [Sample(catalogue.PARKED, 2, ("views",))]

    async def hangs() -> list[Sample]:
        await asyncio.Event().wait()
        return []

    await asyncio.gather(sampler._look("parked", parked), sampler._look("hangs", hangs))
    assert registry.get_sample_value("tenuto_parked_items", {"consumer": "views"}) is None
    failing = False
    await sampler._look("parked", parked)
    assert registry.get_sample_value("tenuto_parked_items", {"consumer": "views"}) == 2
    failing = True
    await sampler._look("parked", parked)
    assert registry.get_sample_value("tenuto_parked_items", {"consumer": "views"}) is None


def test_pools_that_users_make_up_are_no_series_without_end() -> None:
    values = {(f"pool-{index}", "waiting"): float(index) for index in range(5_000)}
    shown = shown_pools({name: value for (name, _), value in values.items()})
    found = by_pool(catalogue.POOL_TRIALS, values, shown)
    assert len(found) == POOLS_SHOWN_MAX + 1
    assert ("pool-4999", "waiting") in {item.labels for item in found}
    assert next(item.value for item in found if item.labels[0] == OTHERS) == sum(range(5_000 - POOLS_SHOWN_MAX))


@pytest.mark.parametrize(
    ("listen", "address"), [("0.0.0.0:9100", ("0.0.0.0", 9100)), ("[::1]:9", ("::1", 9)), ("localhost:0", ("localhost", 0))]
)
def test_addresses(listen: str, address: tuple[str, int]) -> None:
    assert Settings(metrics_listen=listen).metrics_address() == address


@pytest.mark.parametrize("listen", ["9100", ":9100", "::1:9100", "host:70000", "host:-1", "http://host:1", "a b:1"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(SettingsError, match="TENUTO_METRICS_LISTEN"):
        Settings(metrics_listen=listen).metrics_address()


def test_the_catalogue_keeps_to_the_conventions_of_prometheus() -> None:
    for measure in catalogue.MEASURES:
        assert measure.name.startswith("tenuto_")
        assert (measure.kind == "counter") == measure.name.endswith("_total"), measure.name
        if measure.kind == "histogram":
            assert measure.name.endswith("_seconds"), measure.name
        assert measure.meaning.endswith(".")
        forbidden = {"experiment", "trial", "user", "agent", "node", "allocation", "address", "workspace"}
        assert not forbidden & set(measure.labels), f"{measure.name} has a label without bounds"
