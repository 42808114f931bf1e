"""Parts of a submission: configuration, packed model directory, and where both come from."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tenuto.client.errors import ClientError

if TYPE_CHECKING:
    from tenuto.schemas.record import Origin

Config = Mapping[str, Any] | str | Path
SPOOLED_BYTES = 4 << 20
"""Most bytes of an archive in memory; a larger one goes to disk."""
COMMAND_LINE_CHARACTERS_MAX = 10_000


@dataclass(frozen=True)
class Submission:
    config: bytes
    context: IO[bytes]
    context_bytes: int
    origin: bytes


def prepare(config: Config, directory: str | Path | None) -> Submission:
    """Parts of a submission. `config`: in the shape of a configuration, or the path of its YAML file. `directory`: with the
    model's code. The caller closes `context`. Raises ClientError."""
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    from tenuto.client.packing import pack
    from tenuto.kernel.settings import Settings

    text = config_text(config)
    model = None if directory is None else Path(directory)
    archive = tempfile.SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115 - the caller closes it
    try:
        with ThreadPoolExecutor(1) as beside:
            origin = beside.submit(origin_of, sys.argv[:1], model, {})  # git takes about as long as the packing
            packed = pack(model, archive, Settings.from_environment().context_bytes_max)
            archive.seek(0)
            return Submission(text, archive, packed.size_bytes, origin.result().to_json())
    except BaseException:
        archive.close()
        raise


def config_text(config: Config) -> bytes:
    """Configuration as the cluster reads it. Raises ClientError. Warns of values that other readers of YAML take for something
    else."""
    import warnings

    from tenuto.schemas.config.yaml_text import differences

    if isinstance(config, Mapping):
        try:
            return json.dumps(config, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ClientError(
                f"The configuration cannot be sent as JSON ({error}): use finite numbers, text, lists and dicts."
            ) from error
    try:
        text = Path(config).read_bytes()
    except OSError as error:
        raise ClientError(f"Cannot read {config}: {error.strerror}; give the configuration's YAML file, or a dict.") from error
    for difference in differences(text):
        warnings.warn(f"{config}, {difference}", stacklevel=2)
    return text


def origin_of(arguments: Sequence[str], directory: Path | None, overrides: Mapping[str, Any]) -> Origin:
    """Origin to record beside configuration and code: the command line, the values that it overrides, the state of git. The part
    of an address before an @ is left out."""
    import shlex

    from tenuto.schemas.record import OVERRIDES_MAX, Origin
    from tenuto.workers.record.git import CREDENTIALS, git_state

    return Origin(
        command_line=CREDENTIALS.sub("(hidden)@", shlex.join(arguments))[:COMMAND_LINE_CHARACTERS_MAX],
        overrides=dict(list(overrides.items())[:OVERRIDES_MAX]),
        git=None if directory is None else git_state(directory),
    )
