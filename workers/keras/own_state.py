"""State that the parts of a Keras model hold beside their variables: plain attributes of layers, models, optimizers, metrics,
losses and schedules, such as a counter, a memory bank, a list or a generator."""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import keras

from tenuto.workers.keras.checkpoint import optimizers_of
from tenuto.workers.keras.trial import KerasTrial
from tenuto.workers.user_state import generators, kinds
from tenuto.workers.user_state.code_variables import CODE_PREFIX
from tenuto.workers.user_state.graph import Own, Path

LIBRARIES = ("keras", "tensorflow", "torch", "tf_keras")
_NEVER = frozenset(("autocast", "built", "compiled", "name", "steps_per_execution", "stop_training", "supports_jit", "training"))
"""Public names of Keras that say how an object was made, or what it does just now."""
_TRACKING = ("_self_", "__")
"""Beginnings of names that TensorFlow gives what it notes about an object."""
_SYMBOLS = ("KerasTensor", "SymbolicTensor")
"""Types of stand-ins for values, which a traced call may leave in an attribute."""


class Compiled:
    """Arguments of `model.compile`, in their present state: losses, metrics and schedules, which are no layers."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def attributes(self) -> list[tuple[str, Any]]:
        model = self._model
        loss, metrics = getattr(model, "_compile_loss", None), getattr(model, "_compile_metrics", None)
        return [
            ("loss", getattr(loss, "_user_loss", None)),
            ("metrics", getattr(metrics, "_user_metrics", None)),
            ("weighted_metrics", getattr(metrics, "_user_weighted_metrics", None)),
            ("learning_rate", [getattr(optimizer, "_learning_rate", None) for optimizer in optimizers_of(model)]),
        ]


def parts_of(model: Any) -> dict[str, Any]:
    """Parts of a model that may hold such state, by names that are the same in each process: a layer's is its place among its
    parent's layers, in the order of their making."""
    found: dict[str, Any] = {"model": model}
    _layers_of(model, "", found)
    layers = list(found.items())
    for name, layer in layers:
        for index, metric in enumerate(getattr(layer, "_metrics", None) or ()):
            found[f"metric {index} of {name}"] = metric
        if keras.backend.backend() == "torch":
            found |= {f"module {inner} of {name}": item for inner, item in _modules_of(layer)}
    found |= {f"optimizer {index}": item for index, item in enumerate(optimizers_of(model))}
    given = dict(Compiled(model).attributes())
    metrics = [item for item in _flat([given["metrics"], given["weighted_metrics"]]) if isinstance(item, keras.metrics.Metric)]
    found |= {f"metric {index} of compile": item for index, item in enumerate(metrics)}
    return found


def _layers_of(owner: Any, place: str, found: dict[str, Any]) -> None:
    for index, layer in enumerate(owner._flatten_layers(include_self=False, recursive=False)):
        if not any(layer is known for known in found.values()):
            found[f"layer at {place}{index}"] = layer
            _layers_of(layer, f"{place}{index}.", found)


def _modules_of(layer: Any) -> Iterator[tuple[str, Any]]:
    """Modules of torch's inside a layer, which are no layers."""
    for name, module in layer.named_children():
        if not isinstance(module, keras.layers.Layer):
            yield from ((f"{name}.{inner}" if inner else name, item) for inner, item in module.named_modules())


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def own_state(value: Any) -> Own | None:
    """Attributes of an object that its variables leave out; None: not looked for, or all of them."""
    if isinstance(value, (KerasTrial, keras.callbacks.Callback)):
        return None  # all of their attributes are searched
    if isinstance(value, Compiled):
        return Own(value.attributes())
    if isinstance(value, keras.layers.Layer):
        inner: dict[str, Any] = {}
        _layers_of(value, "", inner)
        return Own(list(_plain(value)), [((f".{name}",), layer) for name, layer in inner.items()])
    if _is_torchs_module(value):
        from tenuto.workers.pytorch import own_state as torchs

        return torchs.own_state(value)
    kind: Any = type(value)
    if isinstance(value, (keras.Variable, keras.random.SeedGenerator)) or not _is_keras(kind):
        return None
    return Own(list(_plain(value)))


def generators_of(parts: Sequence[Any]) -> list[Any]:
    """Generators that these parts hold."""
    held = [item for part in parts if (own := own_state(part)) is not None for _, item in own.attributes]
    return generators.own_generators(*(item for item in held if not _is_scalar(item)), skip=parts)


def _plain(value: Any) -> Iterator[tuple[str, Any]]:
    kind: Any = type(value)
    ours = any(generators.is_users(base) for base in kind.__mro__)
    theirs = _set_by_libraries(kind)
    for name, item in generators.attributes(value):
        if name in _NEVER or name.startswith(_TRACKING) or type(item).__name__ in _SYMBOLS or _is_method(kind, name):
            continue
        if (not ours or name in theirs) and (name.startswith("_") or not _is_scalar(item)):
            continue  # Keras keeps what has to be kept of it
        yield name, item


def _is_method(kind: Any, name: str) -> bool:
    """True for a method that was replaced in this object, which is code."""
    return callable(inspect.getattr_static(kind, name, None))


def _is_scalar(value: Any) -> bool:
    return type(value) in kinds.SCALARS or (type(value) is tuple and all(type(item) in kinds.SCALARS for item in value))


def _is_torchs_module(value: Any) -> bool:
    return any(base.__module__ == "torch.nn.modules.module" for base in type(value).__mro__)


@functools.cache
def _is_keras(kind: Any) -> bool:
    return any(base.__module__.partition(".")[0] == "keras" for base in kind.__mro__)


@functools.cache
def _set_by_libraries(kind: Any) -> frozenset[str]:
    """Attributes that the libraries' classes among the bases set, in any way."""
    found = frozenset(vars(keras.layers.Layer())) if issubclass(kind, keras.layers.Layer) else frozenset()
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in LIBRARIES:
            found |= _set_in(base)
    return found


@functools.cache
def _set_in(kind: Any) -> frozenset[str]:
    found: set[str] = set()
    for item in vars(kind).values():
        function = item.fset if isinstance(item, property) else getattr(item, "__func__", item)
        if callable(function) and not isinstance(function, type):
            found |= _stored(getattr(inspect.unwrap(function), "__code__", None))
    return frozenset(found)


def _stored(code: CodeType | None) -> set[str]:
    if code is None:
        return set()
    found = {str(step.argval) for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}
    return found.union(*(_stored(item) for item in code.co_consts if isinstance(item, CodeType)))


def shown(parts: Mapping[str, Any], path: Path) -> str:
    """Name of an attribute for people: `memory of layer 'gate' (Gate)`."""
    root, rest = path[0], "".join(path[1:])
    part = parts.get(root)
    kind = root.partition(" ")[0]
    if kind in ("layer", "metric", "module") and part is not None and rest:
        return f"{rest.removeprefix('.')} of {kind} {getattr(part, 'name', None) or root!r} ({type(part).__name__})"
    return f"optimizer{rest}" if root == "optimizer 0" else f"{root.removeprefix(CODE_PREFIX)}{rest}"
