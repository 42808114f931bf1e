"""A checkpoint's files on this machine: unpacked from the stream that the gateway sends, and read as weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.client.blocking.transport import Transport
from tenuto.client.errors import ClientError
from tenuto.client.messages import Request
from tenuto.client.target import Target

SHARDED = "shards.json"
"""File of a checkpoint whose models are divided among ranks."""
KERAS = "tenuto"
ALIASES = "tenuto_aliases"
"""Notes of a Keras trial and a PyTorch trial in a file of weights."""
NAMES_SHOWN_MAX = 5


def download(target: Target, checkpoint_id: str, directory: Path) -> Path:
    """Directory with the files, which appears only when it is complete. Raises ClientError."""
    import shutil

    if directory.exists():
        raise ClientError(f"{directory} exists already: give another directory with --output.")
    partial = directory.with_name(f".{directory.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        _take(target, checkpoint_id, partial)
        partial.rename(directory)
    except OSError as error:
        raise ClientError(f"Cannot write the checkpoint to {directory}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory


def load(target: Target, checkpoint_id: str, index: int) -> Mapping[str, Any]:
    """Names and tensors of the model number `index`: of torch if it is installed and a torch model wrote them, else arrays of
    numpy. Raises ClientError."""
    from tenuto.kernel.scratch import scratch_directory

    with scratch_directory("checkpoint") as directory:
        _take(target, checkpoint_id, directory)
        names = sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
        weights = "model.safetensors" if index == 0 else f"model_{index}.safetensors"
        if weights not in names and SHARDED not in names:
            shown = ", ".join(names[:NAMES_SHOWN_MAX]) + (", ..." if len(names) > NAMES_SHOWN_MAX else "")
            raise ClientError(
                f"Checkpoint {checkpoint_id} has no {weights} (its files: {shown}): `download` gives them all, to be read "
                "by the code that wrote them."
            )
        try:
            return _read(directory, weights, index)
        except (OSError, ValueError, TypeError) as error:
            raise ClientError(f"The weights of checkpoint {checkpoint_id} cannot be read here: {error}.") from error


def _read(directory: Path, weights: str, index: int) -> Mapping[str, Any]:
    """Raises OSError, ValueError, TypeError."""
    import json

    import safetensors

    from tenuto.kernel.optional import NotInstalled, needed

    file = directory / weights
    if file.exists():
        with safetensors.safe_open(file, framework="np") as opened:
            metadata = opened.metadata() or {}
        if KERAS in metadata:
            from tenuto.workers.keras.weights import read_arrays

            return dict(read_arrays(file))
    try:
        needed("torch")
    except NotInstalled:
        with safetensors.safe_open(file, framework="np") as opened:
            state = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return state | {name: state[stored] for name, stored in json.loads(metadata.get(ALIASES, "{}")).items()}
    from tenuto.workers.pytorch.state import load_model_state

    return load_model_state(directory, index)


def _take(target: Target, checkpoint_id: str, directory: Path) -> None:
    import tarfile

    from tenuto.kernel.archives import extract

    try:
        with (
            Transport(target).open(Request("GET", f"/checkpoints/{checkpoint_id}/download")) as response,
            tarfile.open(fileobj=response.raw, mode="r|*") as archive,
        ):
            for entry in archive:
                extract(archive, entry, directory)
    except tarfile.TarError as error:
        raise ClientError(f"The checkpoint {checkpoint_id} arrived damaged ({error}): try again.") from error
