"""Search methods of other packages in a configuration: the name is that of an installed method, whose own model
checks its settings. Code that only reads recorded configurations needs neither."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic import ValidationError

from tenuto.kernel import plugins
from tenuto.schemas.config import ExperimentConfig, PluginSearcher
from tenuto.schemas.config.errors import ConfigError, Problem, explain_settings, no_such_method, show
from tenuto.schemas.config.reading import load_yaml, parse_config
from tenuto.schemas.config.reading import validated as validated_alone
from tenuto.schemas.config.searchers import OWN_NAMES

GROUP = "tenuto.search_methods"


def parsed(text: str | bytes) -> ExperimentConfig:
    """Same as `schemas.config.reading.parse_config`, but with the methods that this Python has. Raises ConfigError."""
    document = load_yaml(text)
    return validated(document) if isinstance(document, dict) else parse_config(text)


def validated(document: Mapping[str, Any]) -> ExperimentConfig:
    """Same as `schemas.config.reading.validated`, but with the methods that this Python has: defaults of their settings are
    filled in. Raises ConfigError."""
    searcher = document.get("searcher")
    name = searcher.get("name") if isinstance(searcher, Mapping) else None
    if isinstance(searcher, Mapping) and isinstance(name, str) and name not in OWN_NAMES:
        if name not in plugins.names(GROUP):
            _refuse(document, searcher, name)
        document = {**document, "searcher": {**searcher, "settings": searcher.get("settings") or {}}}
    return settled(validated_alone(document))


def _refuse(document: Mapping[str, Any], searcher: Mapping[str, Any], name: str) -> NoReturn:
    """Raises ConfigError, with all else that is wrong."""
    try:
        validated_alone({**document, "searcher": {key: value for key, value in searcher.items() if key != "settings"}})
    except ConfigError as error:
        others = [problem for problem in error.problems if problem.path != "searcher.name"]
        known = plugins.names(GROUP)
        raise ConfigError([Problem("searcher.name", no_such_method(name, known), show(name)), *others]) from error
    raise AssertionError(f"{name} is a method of nobody")


def settled(config: ExperimentConfig) -> ExperimentConfig:
    """The configuration with the settings of its method as the method's own model reads them. Raises ConfigError."""
    searcher = config.searcher
    if not isinstance(searcher, PluginSearcher):
        return config
    try:
        model = plugins.load(GROUP, searcher.name).SETTINGS
        settings = model.model_validate(searcher.settings).model_dump(mode="json")
    except ValidationError as error:
        raise ConfigError(explain_settings(error, model)) from error
    except plugins.PluginError as error:
        raise ConfigError([Problem("searcher.name", str(error).rstrip("."), show(searcher.name))]) from error
    except Exception as error:  # the package's own code runs
        why = f"the search method {searcher.name} cannot be used ({type(error).__name__}: {error})"
        raise ConfigError([Problem("searcher.name", why)]) from error
    return config.model_copy(update={"searcher": searcher.model_copy(update={"settings": settings})})
