"""Reads an experiment configuration: YAML or JSON text, within bounds, as a checked model. `errors.py` words the problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from tenuto.schemas.config import entrypoint
from tenuto.schemas.config.errors import ConfigError, Problem, explain, show
from tenuto.schemas.config.experiment import ExperimentConfig
from tenuto.schemas.config.judging import Unfit, judged
from tenuto.schemas.config.yaml_text import CONFIG_BYTES_MAX, CoreLoader

NODES_MAX = 20_000
"""Most values in a configuration, counted after its anchors are expanded: aliases of aliases could otherwise fill the memory."""
DEPTH_MAX = 64
"""Most levels of lists and mappings: reading takes a time that grows with their square, and uses the stack."""


def parse_config(text: str | bytes) -> ExperimentConfig:
    """The configuration in YAML or JSON text. Raises ConfigError."""
    data = load_yaml(text)
    if not isinstance(data, dict):
        raise ConfigError(
            [Problem("", "the configuration must be a mapping of fields, such as `name: my-experiment`", show(data))]
        )
    return validated(data)


def validated(data: Mapping[str, Any]) -> ExperimentConfig:
    """Configuration to be submitted, from plain data. Raises ConfigError, also for what is refused only in a new configuration
    (see `submission.py`)."""
    try:
        return judged(data)
    except Unfit as error:
        raise ConfigError([Problem(path, message, *map(show, value)) for path, message, *value in error.problems]) from error
    except ValidationError as error:
        started = [Problem(*found) for found in entrypoint.check_launcher(ExperimentConfig.entrypoint_of(data))]
        raise ConfigError([*explain(error), *started]) from error


def load_yaml(text: str | bytes) -> Any:
    """Plain data of a configuration in YAML 1.2 (see yaml_text.py). Raises ConfigError."""
    data = load_part(text)
    if data is None:
        raise ConfigError([Problem("", "the configuration is empty; name, entrypoint and searcher are required")])
    return data


def load_part(text: str | bytes) -> Any:
    """The same of a file with less than a configuration, or something else; None of an empty one. Raises ConfigError."""
    if len(text) > CONFIG_BYTES_MAX:
        raise ConfigError([Problem("", f"the configuration is {len(text)} bytes long; at most {CONFIG_BYTES_MAX} are allowed")])
    try:
        loader = _YamlLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            # Counted before anything is built: a few aliases of aliases stand for billions of values.
            if _expanded_size(node, {}) > NODES_MAX:
                raise ConfigError(
                    [Problem("", f"the configuration has more than {NODES_MAX} values once its aliases are expanded")]
                )
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError([Problem(where, f"not valid YAML: {error.problem or error.context}")]) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", f"not valid YAML: {str(error).splitlines()[0]}")]) from error
    except (RecursionError, ValueError) as error:
        # A ConfigError is a ValueError, too; the ones from above say what is wrong already.
        if isinstance(error, ConfigError):
            raise
        raise ConfigError([Problem("", f"not valid YAML: {error}")]) from error


class _YamlLoader(CoreLoader):
    """YAML 1.2 with bounds."""

    _depth = _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        self._nodes += 1
        if self._depth > DEPTH_MAX or self._nodes > NODES_MAX:
            what = f"nested more than {DEPTH_MAX} levels deep" if self._depth > DEPTH_MAX else f"more than {NODES_MAX} values"
            raise yaml.MarkedYAMLError(problem=what, problem_mark=self.get_mark())
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def _expanded_size(node: yaml.Node, sizes: dict[int, int]) -> int:
    if id(node) in sizes:
        if sizes[id(node)] == 0:
            raise yaml.MarkedYAMLError(problem="an alias contains itself", problem_mark=node.start_mark)
        return sizes[id(node)]
    sizes[id(node)] = 0  # being counted
    total = 1
    if isinstance(node, yaml.MappingNode):
        total += sum(_expanded_size(key, sizes) + _expanded_size(value, sizes) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        total += sum(_expanded_size(item, sizes) for item in node.value)
    sizes[id(node)] = total
    return total
