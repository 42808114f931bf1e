"""Entrypoints that a submission refuses, by what its model directory has."""

from __future__ import annotations

import pytest

from tenuto.schemas.config.errors import ConfigError
from tenuto.services.gateway.experiments.adapters.contexts import StoredContext
from tenuto.services.gateway.experiments.handling.submission import _check_entrypoint
from tests.support.control_plane import make_config


def check(entrypoint: str, *names: str) -> str:
    """The refusal's sentence; empty if there is none. `names`: at the top of the model directory."""
    try:
        _check_entrypoint(make_config(entrypoint=entrypoint), StoredContext("0" * 64, 1, frozenset(names)))
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("entrypoint", ["builtins:exec", "sys:X", "os.path:join", "json:JSONDecoder", "subprocess:run"])
def test_a_module_of_python_itself_is_refused(entrypoint: str) -> None:
    said = check(entrypoint, "model_def.py")
    assert f"{entrypoint.partition(':')[0].partition('.')[0]} is a module of Python itself, which has no Trial class" in said
    assert "name yours, such as `model_def:MyTrial`" in said


def test_a_file_of_that_name_in_the_model_directory_counts_but_where_an_import_finds_pythons_own() -> None:
    assert check("code:Trial", "code.py") == check("json:Trial", "json") == ""
    assert "sys is a module of Python itself" in check("sys:Trial", "sys.py")


@pytest.mark.parametrize(
    "entrypoint", ["model_def:Trial", "pydantic:BaseModel", "model_def.py", "python -m cProfile model_def.py"]
)
def test_others_are_taken(entrypoint: str) -> None:
    assert check(entrypoint, "model_def.py") == ""
