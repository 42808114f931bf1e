"""Records captured at a start: fingerprints of data, packages, variables without secrets, hardware."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tenuto.schemas.assignments import Assignment
from tenuto.schemas.base import Model
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.record import EnvironmentRecord, KnownData
from tenuto.schemas.reports import DataReport, EnvironmentReport
from tenuto.workers.errors import UserError
from tenuto.workers.record import cache, environment, recorder
from tenuto.workers.record.cache import DigestCache
from tenuto.workers.record.fingerprint import fingerprint
from tenuto.workers.record.hardware import cpu_model
from tenuto.workers.record.variables import MASK, masked, variables_that_matter


def filled(directory: Path) -> Path:
    (directory / "train").mkdir(parents=True)
    (directory / "train" / "a.bin").write_bytes(b"a" * 1000)
    (directory / "train" / "b.bin").write_bytes(b"b" * 2000)
    (directory / "labels.csv").write_text("1,2,3\n")
    return directory


def test_equal_content_has_one_fingerprint_wherever_it_is(tmp_path: Path) -> None:
    first, second = fingerprint(filled(tmp_path / "one")), fingerprint(filled(tmp_path / "two"))
    assert first == second
    assert (first.files, first.size_bytes, first.method) == (3, 3006, "content")


@pytest.mark.parametrize("change", ["content", "name", "more", "fewer"])
def test_any_change_of_a_directory_is_seen(tmp_path: Path, change: str) -> None:
    data = filled(tmp_path / "data")
    before = fingerprint(data)
    if change == "content":
        (data / "train" / "a.bin").write_bytes(b"a" * 999 + b"b")
    elif change == "name":
        (data / "train" / "a.bin").rename(data / "train" / "c.bin")
    elif change == "more":
        (data / "train" / "empty").touch()
    else:
        (data / "labels.csv").unlink()
    assert fingerprint(data).digest != before.digest


def test_above_the_bounds_parts_or_names_are_compared(tmp_path: Path) -> None:
    data = filled(tmp_path / "data")
    assert fingerprint(data, content_bytes_max=10).method == "sampled"
    listing = fingerprint(data, content_files_max=2)
    assert listing.method == "listing"
    (data / "train" / "a.bin").write_bytes(b"c" * 1000)
    assert fingerprint(data, content_files_max=2) == listing
    (data / "train" / "a.bin").write_bytes(b"c" * 1001)
    assert fingerprint(data, content_files_max=2) != listing


def test_a_sample_sees_the_ends_and_the_middle(tmp_path: Path) -> None:
    file = tmp_path / "big"
    content = bytearray(5 << 20)
    seen = set()
    for at in (0, len(content) // 2, len(content) - 1):
        content[at] = 1
        file.write_bytes(content)
        seen.add(fingerprint(file, content_bytes_max=1).digest)
    assert len(seen) == 3


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    data = filled(tmp_path / "data")
    (data / "loop").symlink_to(data)
    (data / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "link").symlink_to(data)
    assert fingerprint(tmp_path / "link").files == 3


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"missing cannot be read on this node: No such file"):
        fingerprint(tmp_path / "missing")


def test_unchanged_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = filled(tmp_path / "data")
    monkeypatch.setattr(cache, "FRESH_SECONDS", -1.0)
    first = fingerprint(data, DigestCache(tmp_path / "cache" / "c.sqlite"))
    monkeypatch.setattr("tenuto.workers.record.fingerprint._read", lambda *_: pytest.fail("read again"))
    assert fingerprint(data, DigestCache(tmp_path / "cache" / "c.sqlite")) == first


def test_a_cached_digest_is_not_used_for_a_file_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, kept = tmp_path / "file", tmp_path / "c.sqlite"
    monkeypatch.setattr(cache, "FRESH_SECONDS", -1.0)
    file.write_bytes(b"one")
    os.utime(file, ns=(1, 1))
    before = fingerprint(file, DigestCache(kept))
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))  # a copy that kept size and time
    assert fingerprint(file, DigestCache(kept)) != before


def test_a_file_that_is_being_written_is_not_cached(tmp_path: Path) -> None:
    file, kept = tmp_path / "file", tmp_path / "c.sqlite"
    file.write_bytes(b"one")
    fingerprint(file, DigestCache(kept))
    with DigestCache(kept) as opened:
        opened.load(str(file))
        assert opened.get(str(file), file.stat(), True) is None


def test_a_broken_cache_costs_nothing_but_time(tmp_path: Path) -> None:
    kept = tmp_path / "c.sqlite"
    kept.write_bytes(b"not a database, but long enough to be read as the header of one" * 20)
    data = filled(tmp_path / "data")
    assert fingerprint(data, DigestCache(kept)) == fingerprint(data)


def test_secrets_are_masked() -> None:
    given = {
        "HF_TOKEN": "hf_abcdefghijklmnopqrst", "OMP_NUM_THREADS": "4", "HOME": "/root", "TENUTO_TOKEN": "t",
        "MY_PROXY": "http://ada:pw@proxy:80", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "GPU-1",
        "TORCHELASTIC_RUN_ID": "1-1/2", "TF_CONFIG": "{}", "NCCL_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    found = variables_that_matter(given, also=["MY_PROXY"])
    assert found == {
        "HF_TOKEN": MASK, "MY_PROXY": f"http://{MASK}@proxy:80", "OMP_NUM_THREADS": "4", "TOKENIZERS_PARALLELISM": "false",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "API_KEY", "NCCL_AUTH", "GITHUB_TOKEN", "MY_PW", "PW", "DB_PWD", "MYSQLPWD"),
        *("PASS", "DB_PASS2", "REDIS_PASSWD", "SSH_PASSPHRASE", "MY_CRED", "LAB_CREDS", "GCP_CREDENTIALS", "PRIVATE_THING"),
        *(
            "dbPassword",
            "dbPw",
            "apiKey",
            "WANDB_APIKEY",
            "SENTRY_DSN",
            "MY_JWT",
            "GITLAB_PAT",
            "AZURE_SAS",
            "db-pass",
            "HASH_SALT",
        ),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert masked(name, "value") == MASK


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "COMPASS", "MONKEY", "CUDA_PATH", "KEYBOARD", "PASSES", "AUTHOR", "OMP_PINNING", "CREDO"]
)
def test_names_that_only_look_like_those_of_secrets(name: str) -> None:
    assert masked(name, "value") == "value"


def test_values_that_look_like_keys_are_masked() -> None:
    assert masked("TORCH_X", "a sk-abcdefghijklmnop b") == f"a {MASK} b"
    assert masked("TORCH_X", "bfloat16") == "bfloat16"


def test_packages_are_read_from_the_path_and_the_imported_ones_told_apart(tmp_path: Path) -> None:
    for name in ("Foo_Bar-1.2.dist-info", "baz-0.1+cpu.dist-info", "torch-3.0-py3.11.egg-info"):
        (tmp_path / name).mkdir()
    (tmp_path / "baz-0.1+cpu.dist-info" / "top_level.txt").write_text("bazmod\n")
    upgraded = ModuleType("torch")
    upgraded.__dict__["__version__"] = "2.9"
    imported = {"bazmod": ModuleType("bazmod"), "torch": upgraded}
    packages, loaded = environment.installed_packages([str(tmp_path), str(tmp_path / "none")], imported)
    assert packages == {"baz": "0.1+cpu", "foo-bar": "1.2", "torch": "2.9"}, "what is in memory counts, not what came later"
    assert loaded == ("baz", "torch")


def test_cpu_models() -> None:
    assert cpu_model("processor : 0\nmodel name : A  CPU @ 2 GHz\nmodel name : other\n") == "A CPU @ 2 GHz"
    assert cpu_model("CPU implementer : 0x41\nCPU part : 0xd0c\n") == "implementer 0x41 part 0xd0c"
    assert cpu_model("") == ""


def test_the_captured_environment_names_itself() -> None:
    import torch

    first = environment.capture([torch.nn.Linear(2, 2).double()])
    assert first.digest() == environment.capture([torch.nn.Linear(2, 2).double()]).digest()
    assert first.numerics["parameter_dtypes"] == "float64"
    assert first.packages["torch"].startswith(torch.__version__.split("+")[0])
    assert "torch" in first.loaded
    shuffled = EnvironmentRecord(**{**first.model_dump(), "packages": dict(reversed(first.packages.items()))})
    assert shuffled.digest() == first.digest()
    assert first.model_copy(update={"threads": {"torch": "77"}}).digest() != first.digest()


def assignment(*known: KnownData) -> Assignment:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    return Assignment(
        allocation_id="1-1-1", trial_id="1-1", trial_number=1, experiment_id=1,
        config=ExperimentConfig.model_validate({"name": "n", "entrypoint": "m:C", "searcher": searcher}),
        context_hash="", hyperparameters={}, trial_seed=1, experiment_seed=1, slots=(), checkpoint=None, target_length=1,
        known_data=known,
    )  # fmt: skip


@pytest.fixture
def heard(tmp_path: Path) -> Any:
    reports: list[Model] = []
    lines: list[str] = []

    def start(*known: KnownData) -> tuple[list[Model], list[str]]:
        recorder.install(recorder.Recorder(assignment(*known), reports.append, lines.append, tmp_path / "cache.sqlite"))
        return reports, lines

    yield start
    recorder.install(None)


def test_declared_data_are_reported_once_and_a_change_is_said(tmp_path: Path, heard: Any) -> None:
    data = filled(tmp_path / "data")
    digest = fingerprint(data).digest
    reports, lines = heard(KnownData(name="train set", fingerprint=digest, recorded_by="1-1"))
    assert recorder.data(data, name="train set") == data
    recorder.data(data, name="train set")
    [report] = reports
    assert isinstance(report, DataReport)
    assert (report.data.fingerprint, report.changed_from, lines) == (digest, None, [])
    (data / "labels.csv").write_text("3,2,1\n")
    reports, lines = heard(KnownData(name="train set", fingerprint=digest, recorded_by="1-1"))
    recorder.data(data, name="train set")
    changed = reports[-1]
    assert isinstance(changed, DataReport)
    assert changed.changed_from == digest
    assert "warning: the data 'train set' are not what they were when trial 1-1 started" in lines[0]


def test_the_environment_is_reported_once(heard: Any) -> None:
    reports, _ = heard()
    recorder.record_environment()
    recorder.record_environment()
    assert [type(report) for report in reports] == [EnvironmentReport]


def test_another_environment_than_before_is_said(tmp_path: Path) -> None:
    for known, warnings in (("", 0), ("another", 1), (environment.capture().digest(), 0)):
        lines: list[str] = []
        assigned = assignment().model_copy(update={"known_environment": known})
        recorder.Recorder(assigned, lambda _: None, lines.append, tmp_path / "cache.sqlite").environment()
        assert len(lines) == warnings
        assert all("goes on in another environment than before" in line for line in lines)


def test_outside_a_trial_only_the_path_comes_back() -> None:
    recorder.install(None)
    recorder.record_environment()
    assert recorder.data("/nowhere") == Path("/nowhere")


def test_a_helper_process_reports_nothing(tmp_path: Path, heard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reports, _ = heard()
    monkeypatch.setattr(recorder.os, "getpid", lambda: -1)
    recorder.data(filled(tmp_path / "data"))
    assert reports == []
