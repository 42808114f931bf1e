"""The blocking client is the other one without `async` and `await`, and nothing else."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from docs import blocking_client
from tenuto import client
from tenuto.client.aio import door as aio_door
from tenuto.client.blocking import door as blocking_door


def test_the_blocking_client_is_what_is_made_of_the_other() -> None:
    made = blocking_client.made()
    assert len(made) >= 5
    for path, text in made.items():
        assert path.read_text() == text, f"{path} is old: `make docs` writes it"


@pytest.mark.parametrize("name", ["Client", "Experiment", "Trial", "Checkpoint"])
def test_both_have_the_same_methods_with_the_same_parameters(name: str) -> None:
    def signatures(kind: type) -> dict[str, list[tuple[str, object]]]:
        public = {key: value for key, value in inspect.getmembers(kind, callable) if not key.startswith("_")}
        return {
            key: [(p.name, p.default) for p in inspect.signature(value).parameters.values() if p.name != "notice"]
            for key, value in public.items()
        }

    blocking, other = signatures(getattr(client, name)), signatures(getattr(client, f"Async{name}"))
    assert blocking == other
    assert len(blocking) >= 2


def test_only_the_one_with_an_event_loop_needs_one() -> None:
    assert inspect.iscoroutinefunction(aio_door.AsyncRestClient.get)
    assert not inspect.iscoroutinefunction(blocking_door.RestClient.get)
    heavy = "asyncio, httpx, pydantic, numpy, pandas, pyarrow, torch, asyncpg, nats"
    code = f"import sys; from tenuto import Client; print([name for name in '{heavy}'.split(', ') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
