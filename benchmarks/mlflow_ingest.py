"""Values that unmanaged runs log, beside MLflow's own server on the same PostgreSQL: `log-batch` by raw requests over one kept
connection per client, or by MLflow's own client (`--client`), the two servers in turn. The peer has an environment of its own:
`pip install mlflow psycopg2-binary`. Without it, only Tenuto is measured."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
from embedded_cluster import EmbeddedCluster, directory_for_cluster, up
from figures import figure, parse

from tenuto.client.target import Target
from tenuto.embedded.postgres import OWNER
from tenuto.embedded.process import choose_port

API = "/api/2.0/mlflow"
START_SECONDS_MAX = 180.0
METRICS = 10
"""Names of metrics in a batch."""


class Server:
    """One of the two: its address, and how many values it has taken so far."""

    def __init__(self, name: str, url: str, token: str = "") -> None:
        self.name, self._url, self._token = name, url, token
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.experiment = self._post(httpx, "experiments/create", {"name": f"ingest {time.time()}"})["experiment_id"]

    def _post(self, client: Any, path: str, body: dict[str, Any]) -> Any:
        answer = client.post(f"{self._url}{API}/{path}", json=body, headers=self._headers, timeout=120)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def log(self, batches: int, values: int) -> None:
        """One client: a run of its own, batch after batch."""
        with httpx.Client() as client:
            run_id = self._post(client, "runs/create", {"experiment_id": self.experiment, "start_time": 1})["run"]["info"][
                "run_id"
            ]
            for number in range(batches):
                rows = [
                    {"key": f"metric_{at % METRICS}", "value": at / 7, "timestamp": 1_700_000_000_000 + at, "step": at // METRICS}
                    for at in range(number * values, (number + 1) * values)
                ]
                self._post(client, "runs/log-batch", {"run_id": run_id, "metrics": rows})

    def log_by_client(self, batches: int, values: int) -> None:
        """The same by MLflow's client, as a script calls it."""
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        client = MlflowClient(self._url)
        run_id = client.create_run(self.experiment).info.run_id
        for number in range(batches):
            rows = [
                Metric(f"metric_{at % METRICS}", at / 7, 1_700_000_000_000 + at, at // METRICS)
                for at in range(number * values, (number + 1) * values)
            ]
            client.log_batch(run_id, rows)

    def each(self, calls: int) -> float:
        """Values per second of one script that logs each by itself."""
        from mlflow.tracking import MlflowClient

        client = MlflowClient(self._url)
        run_id = client.create_run(self.experiment).info.run_id
        began = time.perf_counter()
        for number in range(calls):
            client.log_metric(run_id, "loss", 1 / (number + 1), step=number)
        return calls / (time.perf_counter() - began)

    def rate(self, clients: int, batches: int, values: int, *, by_client: bool = False) -> float:
        """Values per second of so many clients at once."""
        log = self.log_by_client if by_client else self.log
        began = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            for done in [pool.submit(log, batches, values) for _ in range(clients)]:
                done.result()
        return clients * batches * values / (time.perf_counter() - began)


@contextlib.contextmanager
def peer(program: Path, database_url: str, directory: Path) -> Iterator[str]:
    """MLflow's server with one worker, as the gateway is one process; yields its address."""
    port = choose_port()
    command = [
        program,
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
        "--backend-store-uri",
        database_url,
    ]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "PATH": f"{program.parent}:{os.environ['PATH']}"}
    with (directory / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            until = time.monotonic() + START_SECONDS_MAX
            while time.monotonic() < until:
                with contextlib.suppress(httpx.HTTPError):
                    if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                        break
                time.sleep(0.5)
            else:
                raise RuntimeError((directory / "mlflow.log").read_text()[-2_000:])
            yield f"http://127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 15)
            process.wait()


def second_database(cluster: EmbeddedCluster) -> str:
    """Makes one on the cluster's PostgreSQL; returns its URL in the form of SQLAlchemy."""
    state = json.loads((cluster.root / "cluster.json").read_text())
    [pid] = [process["pid"] for name, process in state["processes"].items() if name == "gateway"]
    given = dict(
        item.split("=", 1)
        for item in Path(f"/proc/{pid}/environ").read_text().split("\0")
        if item.startswith("TENUTO_DATABASE_URL=")
    )
    service = urlsplit(given["TENUTO_DATABASE_URL"])
    [file] = cluster.root.rglob("owner.password")
    owner = f"{OWNER}:{file.read_text().strip()}@{service.hostname}:{service.port}"

    async def create() -> None:
        connection = await asyncpg.connect(f"postgresql://{owner}/postgres")
        await connection.execute("CREATE DATABASE mlflow")
        await connection.close()

    asyncio.run(create())
    return f"postgresql+psycopg2://{owner}/mlflow"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mlflow", type=Path, help="The program `mlflow` of the peer's environment.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batches", type=int, default=10, help="Of each client, in each repetition.")
    parser.add_argument("--client", action="store_true", help="By MLflow's own client, and each value by itself, too.")
    parser.add_argument("--values", type=int, default=1_000, help="Of a large batch.")
    options = parse(parser, repeats=1, batches=1, values=50)
    with directory_for_cluster() as directory, contextlib.ExitStack() as stack:
        # One script in a loop logs more than a hundred single values a second, which the door would have wait.
        cluster = EmbeddedCluster(
            directory, directory, {"TENUTO_REQUESTS_PER_SECOND_MAX": "0", "TENUTO_TOKEN_REQUESTS_PER_SECOND_MAX": "0"}
        )
        stack.enter_context(up(cluster, 1))
        target = Target.find(str(cluster.root))
        os.environ |= {"MLFLOW_TRACKING_TOKEN": target.token, "MLFLOW_DISABLE_TELEMETRY": "true"}
        servers = [Server("Tenuto", f"{target.url}/mlflow", target.token)]
        if options.mlflow is not None:
            url = stack.enter_context(peer(options.mlflow.absolute(), second_database(cluster), directory))
            servers.append(Server("MLflow", url))
        measure(servers, options)


def measure(servers: list[Server], options: argparse.Namespace) -> None:
    for clients, values in ((1, options.values), (4, options.values), (1, 10)):
        for server in servers:
            server.rate(1, 1, values, by_client=options.client)

        def rate(server: Server, clients: int = clients, values: int = values) -> float:
            return server.rate(clients, options.batches, values, by_client=options.client)

        told(f"{clients} client(s), {values} values a batch", servers, options.repeats, rate)
    if options.client:
        told("1 client, log_metric", servers, options.repeats, lambda server: server.each(10 * options.batches))


def told(what: str, servers: list[Server], repeats: int, rate: Callable[[Server], float]) -> None:
    """Prints a line of as many turns."""
    rates: dict[str, list[float]] = {server.name: [] for server in servers}
    for _ in range(repeats):
        for server in servers:
            rates[server.name].append(rate(server))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    shown = ", ".join(f"{name} {median:,.0f} values/s" for name, median in medians.items())
    if "MLflow" not in rates:
        print(f"{what}: {shown}", flush=True)
        figure(what, medians["Tenuto"], "values/s")
        return
    ratio = statistics.median(a / b for a, b in zip(rates["Tenuto"], rates["MLflow"], strict=True))
    print(f"{what}: {shown}; ratio {ratio:.1f}", flush=True)
    figure(what, medians["Tenuto"], "values/s", beside="MLflow's server", of=medians["MLflow"], ratio=ratio)


if __name__ == "__main__":
    main()
