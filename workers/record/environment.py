"""Captures the environment of this process: interpreter, packages, hardware, drivers, threads, number formats, variables."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tenuto.schemas.record import ENVIRONMENT_BYTES_MAX, EnvironmentRecord
from tenuto.workers.record.hardware import hardware
from tenuto.workers.record.variables import variables_that_matter

THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS", "RAYON_NUM_THREADS",
)  # fmt: skip
IMAGE_VARIABLE = "TENUTO_IMAGE"
"""Variable of a worker in a container: its image, with the digest."""
PACKAGES_MAX = 5_000
VERSIONED = frozenset({"accelerate", "jax", "lightning", "numpy", "pandas", "scipy", "tensorflow", "torch", "transformers"})
"""Modules whose own version is recorded: those that compute, and are named like their distribution."""
DIRECTORIES_KEPT_MAX = 64
"""Most directories of the import path whose packages are cached."""
TOP_LEVEL_BYTES_MAX = 64 * 1024


def capture(
    models: Iterable[Any] = (), *, own_variables: Iterable[str] = (), secret_variables: Iterable[str] = ()
) -> EnvironmentRecord:
    """The environment. `models`: torch modules that are trained; `own_variables`: names that the experiment's configuration sets;
    `secret_variables`: those whose values are secret.

    Takes some milliseconds, and imports nothing that is not imported already, except the GPU's binding.
    """
    machine, drivers = hardware(os.environ)
    packages, loaded = installed_packages(sys.path, dict(sys.modules))
    torch = sys.modules.get("torch")
    record = EnvironmentRecord(
        image=os.environ.get(IMAGE_VARIABLE, ""),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver()).strip() or 'unknown libc'}",
        packages=packages,
        loaded=loaded,
        hardware=machine,
        drivers=drivers | (_torch_drivers(torch) if torch else {}),
        threads=_threads(torch),
        numerics=_numerics(torch, models) if torch else {},
        variables={
            name: value
            for name, value in variables_that_matter(os.environ, own_variables, secret_variables).items()
            if name not in THREAD_VARIABLES
        },
    )
    if len(record.to_json()) > ENVIRONMENT_BYTES_MAX:
        record = record.model_copy(update={"variables": {}})
    return record


def installed_packages(paths: Iterable[str], imported: Mapping[str, ModuleType]) -> tuple[dict[str, str], tuple[str, ...]]:
    """(version by name, names of those that were imported), sorted. The first one on the path counts, as for an import.

    Read from the names of the metadata directories: a hundred times faster than parsing their content.
    """
    packages: dict[str, str] = {}
    loaded: set[str] = set()
    for directory in paths:
        for name, version, raw, named in _distributions(directory or "."):
            if name in packages or len(packages) >= PACKAGES_MAX:
                continue
            packages[name] = version
            modules = imported.keys() & named
            if modules:
                loaded.add(name)
            # The version in memory counts: a package may have been upgraded on disk since this process, or the warm one that it
            # was forked from, imported it.
            own = getattr(imported[raw], "__dict__", {}).get("__version__") if raw in modules & VERSIONED else None
            if isinstance(own, str):
                packages[name] = own
    return dict(sorted(packages.items())), tuple(sorted(loaded))


Distribution = tuple[str, str, str, frozenset[str]]
"""Name, version, the name as it is written in the directory's name, and top-level modules."""


def remember_packages() -> None:
    """Reads the installed packages, so that processes forked from this one need not, as long as nothing is installed or
    removed."""
    installed_packages(sys.path, {})


def _distributions(directory: str) -> tuple[Distribution, ...]:
    try:
        return _read_distributions(os.path.abspath(directory), os.stat(directory).st_mtime_ns)
    except OSError:
        return ()


@lru_cache(maxsize=DIRECTORIES_KEPT_MAX)
def _read_distributions(directory: str, changed_ns: int) -> tuple[Distribution, ...]:
    """Distributions in a directory. `changed_ns`: time when an entry was last added or removed. Raises OSError."""
    found = []
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        stem, dot, kind = entry.name.rpartition(".")
        if dot and kind in ("dist-info", "egg-info"):
            raw, _, version = stem.partition("-")
            modules = frozenset(_modules_of(Path(entry.path), raw))
            found.append((normal_name(raw), re.sub(r"-py\d.*$", "", version), raw, modules))
    return tuple(found)


def normal_name(name: str) -> str:
    """Normal form of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _modules_of(metadata: Path, raw_name: str) -> set[str]:
    """Top-level modules, as far as they can be found quickly."""
    try:
        with (metadata / "top_level.txt").open("rb") as file:
            named = set(file.read(TOP_LEVEL_BYTES_MAX).decode(errors="replace").split())
    except OSError:
        named = set()
    plain = raw_name.replace("-", "_").replace(".", "_")
    return named | {plain, plain.lower(), *_MODULES_OF_OTHER_NAMES.get(normal_name(raw_name), ())}


_MODULES_OF_OTHER_NAMES = {
    "scikit-learn": ("sklearn",),
    "pillow": ("PIL",),
    "opencv-python": ("cv2",),
    "opencv-python-headless": ("cv2",),
    "pyyaml": ("yaml",),
    "pytorch-lightning": ("pytorch_lightning",),
}
"""Modules of common packages that neither list their modules nor are named like them."""


def _threads(torch: Any) -> dict[str, str]:
    found = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    try:
        found["cores_usable"] = str(len(os.sched_getaffinity(0)))
    except AttributeError:  # not Linux
        found["cores_usable"] = str(os.cpu_count() or 1)
    if torch:
        found["torch"] = str(torch.get_num_threads())
        found["torch_interop"] = str(torch.get_num_interop_threads())
    return dict(sorted(found.items()))


def _torch_drivers(torch: Any) -> dict[str, str]:
    """Versions that torch itself was built with."""
    cuda, hip = getattr(torch.version, "cuda", None), getattr(torch.version, "hip", None)
    found = {}
    if cuda:
        found["torch_cuda"] = str(cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())
    if hip:
        found["torch_hip"] = str(hip)
    return found


def _numerics(torch: Any, models: Iterable[Any]) -> dict[str, str]:
    found = {
        "default_dtype": _dtype(torch.get_default_dtype()),
        "deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    dtypes = sorted({_dtype(item.dtype) for model in models for item in model.parameters()})
    if dtypes:
        found["parameter_dtypes"] = ", ".join(dtypes)
    if torch.version.cuda:
        found["cudnn_benchmark"] = str(torch.backends.cudnn.benchmark)
        found["cudnn_deterministic"] = str(torch.backends.cudnn.deterministic)
        found["cudnn_tf32"] = str(torch.backends.cudnn.allow_tf32)
    return dict(sorted(found.items()))


def _dtype(value: Any) -> str:
    return str(value).removeprefix("torch.")


def models_of(trainer: Any) -> list[Any]:
    """The torch modules that a trainer trains, if it has any."""
    models = getattr(getattr(trainer, "context", None), "_models", ())
    return [model for model in models if callable(getattr(model, "parameters", None))]
