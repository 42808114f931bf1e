"""Differences between two runs, from their records. Pure: the same records give the same list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.schemas.record import IMPORT_SCRIPT, DataFingerprint, EnvironmentRecord, GitState, is_of_the_run
from tenuto.services.gateway.experiments.policies.likely_effect import ConfigDifference, Kind, by_likely_effect
from tenuto.services.gateway.reader.changes import CodeChange, flat, flat_settings


@dataclass(frozen=True)
class Side:
    """One of the two: an experiment, or one of its trials."""

    label: str
    config: Mapping[str, Any]
    """Configuration as recorded, in plain data."""
    hyperparameters: Mapping[str, Any] | None
    """Hyperparameters of the trial. None: an experiment, whose search space is compared."""
    seed: int
    seed_chosen: bool
    """True: the user set the seed. False: it was drawn."""
    target_length: int | None = None
    """Target length of the trial."""
    context_hash: str = ""
    overrides: Mapping[str, str] | None = None
    git: GitState | None = None
    environment: EnvironmentRecord | None = None
    """The last one that it ran in. None: not on record."""
    earlier_environments: tuple[EnvironmentRecord, ...] = ()
    """Other ones that it had begun to train in before."""
    changed_data: tuple[str, ...] = ()
    """Data that changed between its own starts."""
    data: tuple[DataFingerprint, ...] = ()
    unmanaged: bool = False


SEARCH_PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables that only say where to look: what was found there, packages and libraries, is on record itself and named before."""
DTYPE_SETTINGS = ("optimizations.mixed_precision",)
SEED_SETTINGS = ("reproducibility.experiment_seed", "searcher.trial_seed")
NUMERIC_SETTINGS = ("reproducibility.",)
WITHOUT_EFFECT = (
    "name", "description", "labels", "resources.max_slots", "resources.max_wall_hours", "resources.priority",
    "resources.weight", "resources.pool", "resources.share", "resources.group", "checkpoint_",
    "min_checkpoint_period", "min_validation_period", "log_period", "max_restarts", "workspace", "project",
)  # fmt: skip
"""Settings that do not change what is trained, by the beginning of their path."""


def differences(a: Side, b: Side, code: Iterable[CodeChange] | None) -> list[ConfigDifference]:
    """`code`: what differs between the model directories; None: not known. The most likely cause of other results comes first."""
    found = [
        *_data(a, b),
        *_settings(a, b),
        *_seeds(a, b),
        *_code(a, b, code),
        *_environments(a.environment, b.environment, _set_differently(a, b)),
        *_moves(a, b),
    ]
    return by_likely_effect(found)


def gaps(a: Side, b: Side) -> list[str]:
    """Parts that could not be compared, as sentences."""
    found = [
        f"{side.label}: no environment is on record; none of its workers has begun to train."
        for side in (a, b)
        if side.environment is None
    ]
    for side in (a, b):
        others = [item for item in side.earlier_environments if any(_environments(item, side.environment))]
        if others:
            count = len(others) + 1
            found.append(f"{side.label} ran in {count} environments, one after the other; the last is compared with the other's.")
        if side.changed_data:
            found.append(f"{side.label}: data changed between its own starts: {', '.join(side.changed_data)}.")
    without = [side.label for side in (a, b) if not side.data]
    if without:
        found.append(
            f"{' and '.join(without)} declared no data, so changed data cannot be told; declare them in the trial's code with "
            "tenuto.data(path)."
        )
    for side in (a, b):
        partly = [item.name for item in side.data if item.method != "content"]
        if partly:
            found.append(f"{side.label}: too large to read in full, so a change inside may be missed: {', '.join(partly)}.")
    return found


def _data(a: Side, b: Side) -> Iterator[ConfigDifference]:
    if not a.data or not b.data:
        return  # nothing declared is no change; `gaps` says it
    left, right = {item.name: item for item in a.data}, {item.name: item for item in b.data}
    for name in sorted(left.keys() & right.keys()):
        if left[name].fingerprint != right[name].fingerprint:
            yield ConfigDifference(
                "data", name, _data_text(left[name]), _data_text(right[name]), note=_data_note(left[name], right[name])
            )
        elif left[name].path != right[name].path:
            yield ConfigDifference(
                "cosmetic", f"path of {name}", left[name].path, right[name].path, note="the content is the same"
            )
    only_left = [left[name] for name in sorted(left.keys() - right.keys())]
    only_right = [right[name] for name in sorted(right.keys() - left.keys())]
    for item in list(only_left):
        moved = next((other for other in only_right if other.fingerprint == item.fingerprint), None)
        if moved is not None:
            only_left.remove(item)
            only_right.remove(moved)
            yield ConfigDifference("cosmetic", f"name of data {item.name}", item.name, moved.name, note="the content is the same")
    for item in only_left:
        yield ConfigDifference("data", item.name, _data_text(item), None, note=f"only {a.label} read it")
    for item in only_right:
        yield ConfigDifference("data", item.name, None, _data_text(item), note=f"only {b.label} read it")


def _data_text(item: DataFingerprint) -> str:
    return f"{item.fingerprint[:12]} ({item.files} file{'s' * (item.files != 1)}, {item.size_bytes} bytes)"


def _data_note(a: DataFingerprint, b: DataFingerprint) -> str:
    if a.files != b.files:
        return f"the files changed: {a.files} then, {b.files} in the other"
    return "the content changed" if a.size_bytes == b.size_bytes else "the content and its size changed"


def _settings(a: Side, b: Side) -> Iterator[ConfigDifference]:
    left, right = flat_settings(a.config), flat_settings(b.config)
    trials = a.hyperparameters is not None and b.hyperparameters is not None
    if trials:
        assert a.hyperparameters is not None
        assert b.hyperparameters is not None
        for settings, values in ((left, a.hyperparameters), (right, b.hyperparameters)):
            for path in [path for path in settings if path.startswith(("hyperparameters.", "searcher."))]:
                del settings[path]
            settings.update({f"hyperparameters.{name}": value for name, value in flat(values)})
        left["trained length"], right["trained length"] = _length(a), _length(b)
    overridden = {*(a.overrides or {}), *(b.overrides or {})}
    for path in sorted(left.keys() | right.keys()):
        before, after = left.get(path), right.get(path)
        if before == after or path in SEED_SETTINGS:
            continue
        by_hand = any(path == item or path.startswith(f"{item}.") or item.startswith(f"{path}.") for item in overridden)
        note = _override_note(path, a, b) if by_hand else ""
        if path == "entrypoint" and IMPORT_SCRIPT in (before, after):
            yield ConfigDifference("cosmetic", path, before, after, note="one was made without a cluster, and imported")
            continue
        yield ConfigDifference(_kind_of(path), path, before, after, overridden=by_hand, note=note)


def _override_note(path: str, a: Side, b: Side) -> str:
    parts = []
    for side in (a, b):
        for item, value in sorted((side.overrides or {}).items()):
            if path == item or path.startswith(f"{item}.") or item.startswith(f"{path}."):
                parts.append(f"set on the command line of {side.label}: {item}={value}")
    return "; ".join(parts)


def _kind_of(path: str) -> Kind:
    if path.startswith("hyperparameters."):
        return "hyperparameter"
    if path.startswith("environment.variables."):
        return "variable" if path.rpartition(".")[2] in SEARCH_PATHS else "setting"
    if path.startswith(DTYPE_SETTINGS + NUMERIC_SETTINGS):
        return "dtype"
    return "cosmetic" if path.startswith(WITHOUT_EFFECT) else "setting"


def _length(side: Side) -> str | None:
    unit = (side.config.get("searcher") or {}).get("max_length") or {}
    name = "epochs" if unit.get("epochs") is not None else "batches"
    return None if side.target_length is None else f"{side.target_length} {name}"


def _seeds(a: Side, b: Side) -> Iterator[ConfigDifference]:
    if a.seed == b.seed:
        return
    if a.seed_chosen or b.seed_chosen:
        yield ConfigDifference("seed", "seed", a.seed, b.seed)
    else:
        note = "nobody set reproducibility.experiment_seed, so each has its own"
        yield ConfigDifference("drawn_seed", "seed", a.seed, b.seed, note=note)


def _code(a: Side, b: Side, changes: Iterable[CodeChange] | None) -> Iterator[ConfigDifference]:
    if a.context_hash != b.context_hash:
        if changes is None:
            yield ConfigDifference("code", "model directory", a.context_hash[:12], b.context_hash[:12])
        for change in changes or ():
            named = bool(change.settings) and _stand_among_settings(change.settings, a, b)
            kind: Kind = "cosmetic" if named or change.kind == "comments" or not _is_code(change.path) else "code"
            note = "comments or layout only" if change.kind == "comments" else change.kind
            note = "the settings that changed in it are named by themselves" if named else note
            yield ConfigDifference(kind, change.path, change.before, change.after, note=note, detail=change.detail)
    left, right = a.git.commit if a.git else None, b.git.commit if b.git else None
    if left is not None and right is not None and left != right:
        yield ConfigDifference("cosmetic", "git commit", left, right, note="the packed code is what ran; see the files above")


def _stand_among_settings(paths: Iterable[str], a: Side, b: Side) -> bool:
    """True if all that changed in a file of settings differs between the two configurations, too, or was overridden there."""
    left, right = flat_settings(a.config), flat_settings(b.config)
    known = {path for path in left.keys() | right.keys() if left.get(path) != right.get(path)}
    known |= {*(a.overrides or {}), *(b.overrides or {})}
    return all(any(_within(path, other) or _within(other, path) for other in known) for path in paths)


def _within(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}.")


READ_BY_PEOPLE = (
    "readme", "license", "licence", "copying", "notice", "authors", "changelog", "changes", "contributing", "code_of_conduct",
    "citation", "todo",
)  # fmt: skip
"""Names of files, whatever their ending."""


def _is_code(path: str) -> bool:
    """Not what people, or other programs than the training, read only."""
    name = path.lower().rpartition("/")[2]
    stem = name.partition(".")[0]
    return not (
        name.endswith((".md", ".rst", ".adoc", ".txt.license", ".gitignore", ".gitattributes", ".tenutoignore", ".editorconfig"))
        or (stem in READ_BY_PEOPLE and not name.endswith(".py"))
    )


def _set_differently(a: Side, b: Side) -> frozenset[str]:
    """Environment variables that the configurations set, each to another value, or that one of them sets: a setting."""
    left, right = ((side.config.get("environment") or {}).get("variables") or {} for side in (a, b))
    return frozenset(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))


def _environments(
    a: EnvironmentRecord | None, b: EnvironmentRecord | None, named_already: frozenset[str] = frozenset()
) -> Iterator[ConfigDifference]:
    """`named_already`: variables whose difference stands among the settings."""
    if a is None or b is None:
        return
    if a.python != b.python:
        yield ConfigDifference("package", "python", a.python, b.python)
    loaded = {*a.loaded, *b.loaded}
    for name, before, after in _changed(a.packages, b.packages):
        used = name in loaded
        note = "" if used else "not imported by the training process"
        yield ConfigDifference("package" if used else "unused_package", name, before, after, note=note)
    for name, before, after in _changed(a.numerics, b.numerics):
        yield ConfigDifference("hardware" if name == "cpu_capability" else "dtype", name, before, after)
    machines = list(_machines(a, b))
    yield from machines
    other_machine = bool(machines)
    explicit = any(name.isupper() for name in sorted({*a.threads, *b.threads}) if a.threads.get(name) != b.threads.get(name))
    for name, before, after in _changed(a.threads, b.threads):
        if name in named_already:
            continue
        follows = other_machine and not explicit
        note = "it follows from the machine" if follows else ""
        yield ConfigDifference("threads", name, before, after, consequence=follows or name == "cores_usable", note=note)
    for name, before, after in _changed(a.drivers, b.drivers):
        yield ConfigDifference("driver", name, before, after)
    for name, before, after in _changed(a.variables, b.variables):
        if name in named_already or is_of_the_run(name):
            continue
        yield ConfigDifference("variable", name, before, after)
    if a.platform != b.platform:
        yield ConfigDifference("unused_package", "platform", a.platform, b.platform)
    if a.image != b.image:  # what of an image matters is compared above
        yield ConfigDifference("unused_package", "image", a.image or "none", b.image or "none")


def _moves(a: Side, b: Side) -> Iterator[ConfigDifference]:
    """A trial that goes on in another environment is not the run that one of them alone would have made."""
    for side in (a, b):
        values: dict[tuple[Kind, str], list[str]] = {}
        last: dict[tuple[Kind, str], str] = {}
        for earlier in side.earlier_environments:
            for item in _environments(earlier, side.environment):
                values.setdefault((item.kind, item.name), []).append(str(item.a))
                last[item.kind, item.name] = str(item.b)
        for (kind, name), before in values.items():
            text = ", then ".join([*dict.fromkeys(before), last[kind, name]])
            note = f"changed between the starts of {side.label}"
            yield ConfigDifference(kind, name, text if side is a else None, text if side is b else None, note=note)


def _machines(a: EnvironmentRecord, b: EnvironmentRecord) -> Iterator[ConfigDifference]:
    left, right = a.hardware, b.hardware
    gpus = [", ".join(f"{gpu.name} {gpu.memory_gib} GiB" for gpu in item.gpus) or "none" for item in (left, right)]
    if gpus[0] != gpus[1]:
        yield ConfigDifference("hardware", "GPU", gpus[0], gpus[1])
    for name in ("cpu_model", "machine", "cpu_cores"):
        before, after = getattr(left, name), getattr(right, name)
        if before != after:
            yield ConfigDifference("hardware", name, before, after, consequence=name == "cpu_cores")
    if left.memory_gib != right.memory_gib:
        yield ConfigDifference("cosmetic", "memory_gib", left.memory_gib, right.memory_gib)


def _changed(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[tuple[str, str | None, str | None]]:
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name):
            yield name, a.get(name), b.get(name)
