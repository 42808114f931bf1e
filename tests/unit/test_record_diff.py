"""The order of differences: in each planted story the true cause comes first, whatever else differs."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.cli.diff import headline
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.record import DataFingerprint, EnvironmentRecord, GitState, Gpu, Hardware
from tenuto.services.gateway.experiments.policies.differences import Side, differences, gaps
from tenuto.services.gateway.experiments.policies.likely_effect import EFFECTS, ORDER, ConfigDifference, by_likely_effect
from tenuto.services.gateway.reader.changes import CodeChange
from tenuto.services.gateway.reader.code_changes import code_changes

CONFIG: dict[str, Any] = {
    "name": "digits",
    "entrypoint": "model_def:Trial",
    "hyperparameters": {"batch_size": 32, "lr": 0.1, "optimizer": {"momentum": 0.9}},
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
    "reproducibility": {"experiment_seed": 7},
}
ENVIRONMENT = EnvironmentRecord(
    python="CPython 3.12.3",
    platform="Linux 6.1, glibc 2.36",
    packages={"torch": "2.13.0", "numpy": "2.1.0", "rich": "14.0", "pillow": "11.0"},
    loaded=("numpy", "torch"),
    hardware=Hardware(machine="x86_64", cpu_model="CPU A", cpu_cores=16, memory_gib=64, gpus=(Gpu(name="A100", memory_gib=80),)),
    drivers={"nvidia": "550"},
    threads={"OMP_NUM_THREADS": "1", "torch": "1", "cores_usable": "16"},
    numerics={"default_dtype": "float32", "parameter_dtypes": "float32", "cpu_capability": "AVX512"},
    variables={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
)
DATA = DataFingerprint(name="data/train", path="/mnt/a/train", fingerprint="a" * 64, method="content", files=3, size_bytes=1000)


def config(**changes: Any) -> dict[str, Any]:
    return ExperimentConfig.model_validate(CONFIG | changes).model_dump(mode="json")


def side(label: str = "1", **changes: Any) -> Side:
    return replace(
        Side(
            label=label, config=config(), hyperparameters=None, seed=7, seed_chosen=True, context_hash="c" * 64,
            git=GitState(commit="1" * 40), environment=ENVIRONMENT, data=(DATA,),
        ),
        **changes,
    )  # fmt: skip


NOISE: dict[str, Any] = {
    # What differs between any two runs that somebody made weeks apart.
    "config": config(name="digits again", description="second try", resources={"priority": 10}),
    "git": GitState(commit="2" * 40),
    "environment": ENVIRONMENT.model_copy(
        update={
            "packages": {**ENVIRONMENT.packages, "rich": "14.1"},
            "variables": {"LANG": "C"},
            "platform": "Linux 6.9, glibc 2.36",
        }
    ),
}
NOISY = NOISE["environment"]


def noisy(**update: Any) -> EnvironmentRecord:
    return NOISY.model_copy(update=update)  # type: ignore[no-any-return]


BATCH_SIZE = config(name="digits again", hyperparameters=CONFIG["hyperparameters"] | {"batch_size": 64})
STORIES: dict[str, tuple[dict[str, Any], str, str]] = {
    "data files changed": (
        {"data": (DATA.model_copy(update={"fingerprint": "b" * 64, "files": 4}),)}, "data", "data/train"
    ),
    "data changed, and the path too": (
        {"data": (DATA.model_copy(update={"fingerprint": "b" * 64, "path": "/mnt/b/train"}),)}, "data", "data/train"
    ),
    "batch size overridden on the command line": (
        {"config": BATCH_SIZE, "overrides": {"hyperparameters.batch_size": "64"}}, "hyperparameter", "hyperparameters.batch_size"
    ),
    "seed set to another": ({"seed": 8}, "seed", "seed"),
    "code edit": ({"context_hash": "d" * 64}, "code", "model_def.py"),
    "dtype in the configuration": (
        {"config": config(optimizations={"mixed_precision": "bf16"})}, "dtype", "optimizations.mixed_precision"
    ),
    "dtype of the parameters": (
        {"environment": noisy(numerics={**ENVIRONMENT.numerics, "parameter_dtypes": "bfloat16"})}, "dtype", "parameter_dtypes"
    ),
    "package version": ({"environment": noisy(packages={**NOISY.packages, "torch": "2.14.0"})}, "package", "torch"),
    "interpreter": ({"environment": noisy(python="CPython 3.13.0")}, "package", "python"),
    "thread count": (
        {"environment": noisy(threads={**ENVIRONMENT.threads, "OMP_NUM_THREADS": "8", "torch": "8"})},
        "threads", "OMP_NUM_THREADS",
    ),
    "thread count set in the configuration": (
        {"config": config(environment={"variables": {"OMP_NUM_THREADS": "2"}})},
        "setting", "environment.variables.OMP_NUM_THREADS",
    ),
    "package on a path that the configuration sets": (
        {
            "config": config(environment={"variables": {"PYTHONPATH": "/mnt/new"}}),
            "environment": noisy(packages={**NOISY.packages, "torch": "2.14.0"}),
        },
        "package", "torch",
    ),
    "hardware class, GPU": (
        {"environment": noisy(hardware=ENVIRONMENT.hardware.model_copy(update={"gpus": (Gpu(name="H100", memory_gib=80),)}))},
        "hardware", "GPU",
    ),
    "hardware class, CPU with other cores": (
        {
            "environment": noisy(
                hardware=ENVIRONMENT.hardware.model_copy(update={"cpu_model": "CPU B", "cpu_cores": 64}),
                threads={**ENVIRONMENT.threads, "torch": "64", "cores_usable": "64"},
            )
        },
        "hardware", "cpu_model",
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_the_true_cause_comes_first(story: str) -> None:
    change, kind, name = STORIES[story]
    code = [CodeChange("README.md", "changed"), CodeChange("util.py", "comments"), CodeChange("model_def.py", "changed")]
    found = differences(side(), side("2", **{**NOISE, **change}), code if "context_hash" in change else [])
    assert (found[0].kind, found[0].name) == (kind, name), [item.name for item in found]


@pytest.mark.parametrize("story", STORIES)
def test_the_order_of_the_two_does_not_matter(story: str) -> None:
    change, kind, name = STORIES[story]
    found = differences(side("2", **{**NOISE, **change}), side(), [])
    if "context_hash" not in change:
        assert (found[0].kind, found[0].name) == (kind, name)


def test_data_before_an_override_before_code_before_versions() -> None:
    changed = {key: value for story in STORIES for key, value in STORIES[story][0].items()}
    changed |= {"config": BATCH_SIZE, "data": (DATA.model_copy(update={"fingerprint": "b" * 64}),), "seed": 8}
    kinds = [item.kind for item in differences(side(), side("2", **changed), [CodeChange("model_def.py", "changed")])]
    assert kinds[:4] == ["data", "hyperparameter", "seed", "code"]
    effects = ["likely", "possible", "unlikely", "none"]
    assert [effects.index(EFFECTS[kind]) for kind in kinds] == sorted(effects.index(EFFECTS[kind]) for kind in kinds)


def test_an_override_is_named_as_one() -> None:
    [found] = differences(
        side(), side("2", config=BATCH_SIZE | {"name": "digits"}, overrides={"hyperparameters.batch_size": "64"}), []
    )
    assert (found.a, found.b, found.overridden) == (32, 64, True)
    assert found.note == "set on the command line of 2: hyperparameters.batch_size=64"


def test_a_seed_that_nobody_chose_stands_behind_what_someone_changed() -> None:
    drawn = config(reproducibility={})
    first = side(seed=1, seed_chosen=False, config=drawn)
    second = side("2", seed=2, seed_chosen=False, config=drawn, context_hash="d" * 64)
    assert [item.kind for item in differences(first, second, [CodeChange("model_def.py", "changed")])] == ["code", "drawn_seed"]


def test_equal_runs_do_not_differ() -> None:
    assert differences(side(), side("2"), []) == []


def test_moved_data_with_the_same_content_change_nothing() -> None:
    moved = DATA.model_copy(update={"path": "/mnt/b/train"})
    renamed = DATA.model_copy(update={"name": "/mnt/b/train"})
    for data in (moved, renamed):
        assert [item.kind for item in differences(side(), side("2", data=(data,)), [])] == ["cosmetic"]


def test_undeclared_data_are_a_gap_and_not_a_change() -> None:
    first, second = side(), side("2", data=())
    assert differences(first, second, []) == []
    assert gaps(first, second) == [
        "2 declared no data, so changed data cannot be told; declare them in the trial's code with tenuto.data(path)."
    ]
    moved = side("2", earlier_environments=(NOISY,), changed_data=("train",))
    assert gaps(first, moved) == [
        "2 ran in 2 environments, one after the other; the last is compared with the other's.",
        "2: data changed between its own starts: train.",
    ]
    assert gaps(first, side("2", environment=None))[0].startswith("2: no environment is on record")


def test_an_environment_that_changed_under_a_trial_is_named() -> None:
    """Both ended in the same one; but one of them had begun on another machine, under other versions."""
    other_cpu = ENVIRONMENT.hardware.model_copy(update={"cpu_model": "CPU B"})
    before = noisy(packages={**NOISY.packages, "torch": "2.12.0"}, hardware=other_cpu)
    found = differences(side(), side("2", earlier_environments=(before,)), [])
    assert [(item.kind, item.name, item.a, item.b) for item in found[:2]] == [
        ("package", "torch", None, "2.12.0, then 2.13.0"),
        ("hardware", "cpu_model", None, "CPU B, then CPU A"),
    ]
    assert {item.note for item in found[:2]} == {"changed between the starts of 2"}


def test_trials_are_compared_by_what_they_drew() -> None:
    first = side("1-1", hyperparameters={"lr": 0.1, "net": {"width": 4}}, target_length=100)
    second = side("1-2", hyperparameters={"lr": 0.2, "net": {"width": 4}}, target_length=50, seed=8, seed_chosen=False)
    assert [(item.name, item.a, item.b) for item in differences(first, second, [])] == [
        ("hyperparameters.lr", 0.1, 0.2),
        ("trained length", "100 batches", "50 batches"),
        ("seed", 7, 8),
    ]


@given(st.lists(st.builds(ConfigDifference, st.sampled_from(ORDER), st.text(), st.none(), st.none(), st.booleans()), max_size=30))
def test_ordering_is_total_and_loses_nothing(items: list[ConfigDifference]) -> None:
    ordered = by_likely_effect(items)
    assert by_likely_effect(reversed(ordered)) == ordered or len({(i.kind, i.name, i.overridden) for i in items}) < len(items)
    assert sorted(map(repr, ordered)) == sorted(map(repr, items))
    assert set(EFFECTS) == set(ORDER)


def archive(path: Path, **files: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.replace("__", "."))
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return path


def test_changed_files_of_the_model_directory(tmp_path: Path) -> None:
    before = archive(tmp_path / "a", model__py="x = 1  # one\n", same__py="y\n", old__py="z\n", doc__py='def f():\n    "doc"\n')
    after = archive(
        tmp_path / "b", model__py="x = 2\n", same__py="y\n", new__py="z\n", doc__py="def f():\n    # c\n    '''d'''\n"
    )
    found = {change.path: change for change in code_changes(before, after) or ()}
    assert {path: change.kind for path, change in found.items()} == {
        "model.py": "changed", "old.py": "removed", "new.py": "added", "doc.py": "comments",
    }  # fmt: skip
    assert "-x = 1  # one\n+x = 2" in found["model.py"].detail


def test_large_files_are_compared_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.services.gateway.reader.code_changes.FILE_BYTES_MAX", 10)
    before = archive(tmp_path / "a", big__py="x" * 20, same__bin="y" * 20)
    after = archive(tmp_path / "b", big__py="z" * 20, same__bin="y" * 20)
    hashes = [hashlib.sha256(letter * 20).hexdigest()[:12] for letter in (b"x", b"z")]
    assert code_changes(before, after) == [CodeChange("big.py", "changed", "", *hashes)]


def test_an_archive_that_is_gone_leaves_the_hashes(tmp_path: Path) -> None:
    assert code_changes(tmp_path / "a", tmp_path / "b") is None
    [found] = differences(side(), side("2", context_hash="d" * 64), None)
    assert (found.kind, found.name) == ("code", "model directory")


def test_the_same_files_packed_twice_are_the_same_code() -> None:
    assert differences(side(), side("2", context_hash="d" * 64), []) == []


def test_a_variable_that_the_configuration_sets_is_a_setting_and_named_once() -> None:
    """It is on record of the environment, too, which is where its effect is seen."""
    with_one = [config(environment={"variables": {"OMP_NUM_THREADS": value, "MY_MODE": value}}) for value in ("1", "2")]
    environments = [
        ENVIRONMENT.model_copy(
            update={
                "threads": {**ENVIRONMENT.threads, "OMP_NUM_THREADS": value, "torch": value},
                "variables": {**ENVIRONMENT.variables, "MY_MODE": value},
            }
        )
        for value in ("1", "2")
    ]
    first, second = (
        side(label, config=settings, environment=environment)
        for label, settings, environment in zip(("1", "2"), with_one, environments, strict=True)
    )
    found = differences(first, second, [])
    assert [(item.kind, item.name, item.effect) for item in found] == [
        ("setting", "environment.variables.MY_MODE", "likely"),
        ("setting", "environment.variables.OMP_NUM_THREADS", "likely"),
        ("threads", "torch", "possible"),
    ]


def test_what_names_a_run_is_no_environment_of_a_gang_that_was_resumed() -> None:
    """Also where it was recorded by an earlier version."""
    runs = [
        ENVIRONMENT.model_copy(update={"variables": {"TORCHELASTIC_RUN_ID": run, "TF_CONFIG": run, "NCCL_SOCKET_IFNAME": run}})
        for run in ("1-1/1", "1-1/2")
    ]
    resumed = side("2", environment=runs[1], earlier_environments=(runs[0],))
    assert differences(side(environment=runs[0]), resumed, []) == []
    assert gaps(side(environment=runs[0]), resumed) == []


def test_files_are_named_by_their_own_hash_and_what_people_read_is_no_cause(tmp_path: Path) -> None:
    before = archive(tmp_path / "a", model__py="x = 1\n", same__py="y\n")
    after = archive(tmp_path / "b", model__py="x = 2\n", same__py="y\n", README="read", README__txt="read", docs__md="read")
    found = differences(side(), side("2", context_hash="d" * 64), code_changes(before, after))
    hashes = [hashlib.sha256(text).hexdigest()[:12] for text in (b"x = 1\n", b"x = 2\n")]
    assert [(item.name, item.effect) for item in found] == [
        ("model.py", "likely"), ("README", "none"), ("README.txt", "none"), ("docs.md", "none"),
    ]  # fmt: skip
    assert [found[0].a, found[0].b] == hashes
    assert (found[1].a, found[1].b) == (None, hashlib.sha256(b"read").hexdigest()[:12])


FILED = "entrypoint: model_def:Trial\nsearcher: {name: single, metric: loss, max_length: {batches: 100}}\n"


@pytest.mark.parametrize(
    ("text", "changes", "kind"),
    [
        ("hyperparameters: {lr: 0.2}\n", {"config": config(hyperparameters=CONFIG["hyperparameters"] | {"lr": 0.2})}, "cosmetic"),
        ("hyperparameters: {lr: 0.1} # as before\n", {}, "cosmetic"),
        ("hyperparameters: {lr: 0.3}\n", {"overrides": {"hyperparameters.lr": "0.1"}}, "cosmetic"),
        ("hyperparameters: {lr: 0.2}\n", {}, "code"),
        ("hyperparameters: {lr: 0.1}\nown: 1\n", {"config": config(name="b")}, "code"),
        ("hyperparameters: [2020-01-01]\n", {}, "code"),
        ("hyperparameters: {lr: 0.1\n", {}, "code"),
    ],
)
def test_a_configuration_beside_the_code_is_no_cause_where_its_settings_are_named(
    tmp_path: Path, text: str, changes: dict[str, Any], kind: str
) -> None:
    """It may be another one that the code itself reads: then it counts as code."""
    before = archive(tmp_path / "a", config__yaml=f"{FILED}hyperparameters: {{lr: 0.1}}\n")
    after = archive(tmp_path / "b", config__yaml=FILED + text)
    found = differences(side(), side("2", context_hash="d" * 64, **changes), code_changes(before, after))
    [file] = [item for item in found if item.name == "config.yaml"]
    assert file.kind == kind
    if "config" in changes and kind == "cosmetic":
        assert [item.name for item in found] == ["hyperparameters.lr", "config.yaml"]


@pytest.mark.parametrize(
    ("metrics", "weights", "words"),
    [
        (False, None, "the likely cause of other results first"),
        (True, False, "the likely cause of other results first"),
        (True, True, "but their results are equal"),
        (None, None, "no results can be compared yet"),
    ],
)
def test_the_headline_promises_a_cause_only_where_results_differ(metrics: Any, weights: Any, words: str) -> None:
    assert words in headline({"metrics_equal": metrics, "weights_equal": weights})
