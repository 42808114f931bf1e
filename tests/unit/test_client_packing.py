"""Packing a model directory: the same files give the same bytes; what is refused, and with which words."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tenuto.client import ClientError
from tenuto.client.packing import check_entrypoint, pack

LIMIT = 1_000_000


def packed(directory: Path, limit: int = LIMIT) -> tuple[bytes, list[str]]:
    out = io.BytesIO()
    pack(directory, out, limit)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        return out.getvalue(), archive.getnames()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    (directory / "nets").mkdir(parents=True)
    (directory / "model_def.py").write_text("class MyTrial: pass\n")
    (directory / "nets" / "cnn.py").write_text("x = 1\n")
    return directory


def test_a_model_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"/nothing is not a directory: give the directory of your model's code as MODEL_DIR"):
        check_entrypoint(tmp_path / "nothing", "model_def:MyTrial")


def test_equal_files_give_equal_bytes(model: Path, tmp_path: Path) -> None:
    first, _ = packed(model)
    other = tmp_path / "other"
    (other / "nets").mkdir(parents=True)
    (other / "nets" / "cnn.py").write_text("x = 1\n")
    (other / "model_def.py").write_text("class MyTrial: pass\n")
    os.utime(other / "model_def.py", (1, 1))
    (other / "model_def.py").chmod(0o600)
    assert packed(other)[0] == first
    (other / "nets" / "cnn.py").write_text("x = 2\n")
    assert packed(other)[0] != first


def test_what_is_left_out(model: Path) -> None:
    for name in (
        ".git/config",
        "__pycache__/a.pyc",
        "data/big.bin",
        "nets/data/x",
        "weights.ckpt",
        "runs",
        "deep/runs/1",
        "top/a",
        "sub/top/a",
    ):
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text("x")
    (model / ".tenutoignore").write_text("# a comment\n*.ckpt\ndata\nruns/\n/top/*\n")
    _, names = packed(model)
    assert names == [".tenutoignore", "model_def.py", "runs", "nets/cnn.py", "sub/top/a"]


# As `git check-ignore` judges them (git-scm.com/docs/gitignore): (patterns, left out, kept).
RULES = {
    "an exception": (["data/*", "!data/keep.csv"], ["data/big.bin", "data/deep/x"], ["data/keep.csv"]),
    "no exception below what is left out whole": (["data/", "!data/keep.csv"], ["data/keep.csv"], ["other"]),
    "a later pattern": (["*.txt", "!a.txt", "deep/*.txt"], ["b.txt", "deep/a.txt"], ["a.txt", "c/a.txt"]),
    "any depth": (["**/logs", "a/**/z"], ["logs/x", "b/logs/x", "a/z", "a/b/c/z"], ["z"]),
    "a star stays in its folder": (["a/*.py"], ["a/x.py"], ["a/b/x.py"]),
    "only directories": (["runs/"], ["deep/runs/1"], ["runs"]),
    "signs": ([r"\#x", r"\!y", "z[0-9]", "w?", "e "], ["#x", "!y", "z1", "w1", "e"], ["zz", "w", "e x"]),
}


@pytest.mark.parametrize("rule", RULES)
def test_patterns_follow_the_rules_of_gitignore(model: Path, rule: str) -> None:
    patterns, left_out, kept = RULES[rule]
    for name in (*left_out, *kept):
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text("x")
    (model / ".tenutoignore").write_text("\n".join(patterns))
    assert sorted(packed(model)[1]) == sorted([".tenutoignore", "model_def.py", "nets/cnn.py", *kept])


def test_a_pattern_that_is_none_is_told(model: Path) -> None:
    (model / ".tenutoignore").write_text("a\n!\n")
    with pytest.raises(ClientError, match=r"\.tenutoignore: Invalid git pattern: .!.; its patterns follow"):
        packed(model)


def test_the_limit_names_the_largest(model: Path) -> None:
    (model / "weights.bin").write_bytes(os.urandom(50_000))
    with pytest.raises(ClientError, match=r"packs to more than 0 MB, the limit for a context; largest: weights.bin \(0.1 MB\), "):
        packed(model, 40_000)
    packed(model, 60_000)


def test_links(model: Path) -> None:
    (model / "alias.py").symlink_to("nets/cnn.py")
    (model / "folder").symlink_to("nets")
    _, names = packed(model)
    assert names == ["alias.py", "folder", "model_def.py", "nets/cnn.py"]
    (model / "out").symlink_to("/etc/passwd")
    with pytest.raises(ClientError, match="links to /etc/passwd, outside the model directory"):
        packed(model)


def mounted(directory: Path, when: str) -> None:
    """As Kubernetes puts the files of a config map into a volume, at that time: its layout, with a file in a directory, too."""
    real = directory / f"..{when}"
    (real / "sub").mkdir(parents=True)
    for name in ("train.py", ".tenutoignore", "sub/part.py", "left_out.bin"):
        (real / name).write_text("*.bin\n" if name == ".tenutoignore" else "x = 1\n")
    (directory / "..data").unlink(missing_ok=True)
    (directory / "..data").symlink_to(real.name)
    for name in ("train.py", ".tenutoignore", "sub", "left_out.bin"):
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")


@pytest.mark.parametrize("inside", ["", "code"])
def test_a_mounted_config_map_is_its_files(tmp_path: Path, inside: str) -> None:
    """The same step of a pipeline in another pod has another mount, and the same code."""
    found = []
    for number, when in enumerate(("2026_11_27_10_00_00.1", "2026_11_28_11_11_11.22")):
        top = tmp_path / str(number)
        (top / inside).mkdir(parents=True)
        mounted(top / inside, when)
        buffer = io.BytesIO()
        found.append(pack(top, buffer, 10_000).sha256)
        with tarfile.open(fileobj=io.BytesIO(buffer.getvalue())) as archive:
            names = {entry.name: entry.isfile() for entry in archive}
    assert found[0] == found[1]
    expected = {".tenutoignore", "sub/part.py", "train.py"} | ({"left_out.bin"} if inside else set())
    assert names == {str(Path(inside) / name): True for name in expected}


def test_a_name_that_begins_with_dots_is_inside(model: Path) -> None:
    (model / "..odd").write_text("x")
    (model / "link").symlink_to("..odd")
    assert pack(model, io.BytesIO(), 10_000).files == len([path for path in model.rglob("*") if not path.is_dir()])


def test_a_directory_that_cannot_be_read_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is silently left out is missed hours later."""
    (model / "closed").mkdir()
    listed = os.scandir

    def scandir(path: Path) -> Any:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ClientError, match=r"Cannot read .*closed: Permission denied; .* leave it out in .tenutoignore"):
        pack(model, io.BytesIO(), 10_000)
    (model / ".tenutoignore").write_text("closed/\n")
    pack(model, io.BytesIO(), 10_000)


def test_not_a_directory(model: Path) -> None:
    with pytest.raises(ClientError, match="is not a directory"):
        packed(model / "model_def.py")


def test_a_special_file_is_left_out(model: Path) -> None:
    os.mkfifo(model / "pipe")
    assert packed(model)[1] == ["model_def.py", "nets/cnn.py"]


@pytest.mark.parametrize(
    ("entrypoint", "message"),
    [
        ("model_def:MyTrial", None),
        ("nets.cnn:x", None),
        ("pydantic:BaseModel", None),  # installed, not packed
        ("builtins:exec", "entrypoint: builtins is a module of Python itself, which has no Trial class; name yours, such as"),
        ("sys:MyTrial", "entrypoint: sys is a module of Python itself"),
        ("json.decoder:JSONDecoder", "json is a module of Python itself, .*, and the model directory has no json.py; name yours"),
        ("code:MyTrial", None),  # the model directory's own
        ("time:MyTrial", "time is a module of Python itself, which has no Trial class; name yours"),  # an import finds Python's
        ("python -m cProfile model_def.py", None),
        ("model_de:MyTrial", r"entrypoint: model_de.py is not in .* \(Python files there: code.py, model_def.py, time.py\)"),
        ("nets.cnnn:x", "entrypoint: nets.cnnn.py is not in"),
        ("python model_def.py --fast", None),
        ("python -m nets.cnn", None),
        ("train.py", r"entrypoint: train.py is not in .* \(Python files there: code.py, model_def.py, time.py\)"),
        ("python -m nets.rnn", "entrypoint: nets.rnn.py is not in"),
        ("model_def:Missing", r"entrypoint: .*model_def.py does not define Missing \(classes there: MyTrial\)"),
    ],
)
def test_entrypoint(model: Path, entrypoint: str, message: str | None) -> None:
    for name in ("code.py", "time.py"):
        (model / name).write_text("class MyTrial:\n    pass\n")
    if message is None:
        check_entrypoint(model, entrypoint)
    else:
        with pytest.raises(ClientError, match=message):
            check_entrypoint(model, entrypoint)


def test_a_module_that_does_not_parse(model: Path) -> None:
    (model / "model_def.py").write_text("x = 1\nclass MyTrial(\n")
    with pytest.raises(ClientError, match=r"model_def.py:2: '\(' was never closed"):
        check_entrypoint(model, "model_def:MyTrial")


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    from nets import *\nexcept ImportError:\n    Other = None\n",
        "for name in ('MyTrial',):\n    globals()[name] = type(name, (), {})\n",
        "vars()['MyTrial'] = type('MyTrial', (), {})\n",
        "exec('class MyTrial: ...')\n",
        "import sys\nsetattr(sys.modules[__name__], 'MyTrial', type('MyTrial', (), {}))\n",
        "def __getattr__(name):\n    return type(name, (), {})\n",
    ],
)
def test_names_that_only_running_can_tell(model: Path, source: str) -> None:
    (model / "model_def.py").write_text(source)
    check_entrypoint(model, "model_def:MyTrial")
