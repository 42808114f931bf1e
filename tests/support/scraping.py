"""Metrics of a cluster's services, as Prometheus would read them."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.waiting import SECONDS_MAX

SERVICES = ("relay", "searcher", "scheduler", "launcher", "tracker", "gateway")


@dataclass(frozen=True)
class Scraped:
    families: Mapping[str, str]
    """Name of a family -> its kind."""
    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: str) -> float | None:
        return self.values.get((name, frozenset(labels.items())))


def scrape(host: str, first_port: int) -> dict[str, Scraped]:
    """By service. `tenuto up` gives the relay the first port."""
    found = {}
    for index, service in enumerate(SERVICES):
        request = urllib.request.Request(
            f"http://{host}:{first_port + index}/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"}
        )
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        values = {
            (sample.name, frozenset(sample.labels.items())): float(sample.value) for item in families for sample in item.samples
        }
        found[service] = Scraped({item.name: item.type for item in families}, values)
    return found


def probed(host: str, port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=SECONDS_MAX) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
