"""Variables of the agent's environment that its workers inherit: those of this list, and those that a setting adds. Pure.

An agent may be a task of a batch system, a rank of another program, or started from a user's shell. Libraries in a worker would
apply the agent's variables to the worker: as one task of four, Hugging Face waits for the other three for ever. So a worker
inherits variables of the machine and the account, and none that describes the agent's own place in a larger program.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

SETTING = "TENUTO_WORKER_INHERITS"
OWN_PREFIX = "TENUTO_"
"""Prefix of variables of the agent, the cluster and the user who started it, with tokens and passwords among them; workers do
not get these, whatever the setting says."""
HANDED_DOWN = frozenset({"TENUTO_CLUSTER_DIRECTORY", "TENUTO_PACKAGES"})
"""Exceptions: the mark by which a laptop cluster finds all its processes, and the place of our packages in a foreign image."""
OF_IMAGE = ("*", "PYTHON*")
"""Patterns of an agent that runs in the image of its trials: its environment is that of the image, which is theirs, too."""

ACCOUNT = frozenset({"HOME", "LOGNAME", "SHELL", "TERM", "USER"})
PLACES = frozenset(
    {
        "PATH", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH",
        "DYLD_FALLBACK_LIBRARY_PATH",
    }
)  # fmt: skip
COMPILERS = frozenset({"CC", "CXX", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"})
"""torch.compile and extensions compile when they are used."""
LANGUAGE = frozenset({"LANG", "LANGUAGE", "TZ"})
NETWORK = frozenset(
    {name for scheme in ("ALL", "FTP", "HTTP", "HTTPS", "NO") for name in (f"{scheme}_PROXY", f"{scheme}_PROXY".lower())}
    | {
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    }
)  # fmt: skip
DEVICES = frozenset({"GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"})
"""Devices that a batch system gave to the agent: a worker must not take others."""
CLOUD = frozenset({"GCE_METADATA_HOST", "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "MSI_SECRET"})
"""Variables to get credentials of the machine's own account in a cloud: stores that are declared without a key need it."""
NAMES = ACCOUNT | PLACES | COMPILERS | LANGUAGE | NETWORK | DEVICES | CLOUD | HANDED_DOWN

PREFIXES = (
    "LC_", "XDG_", "CONDA_", "MALLOC_",
    "CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "HIP_", "HSA_", "ROCM_", "MIOPEN_",
    "NCCL_", "RCCL_", "GLOO_", "UCX_", "FI_", "IBV_", "RDMAV_",
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "VECLIB_", "NUMEXPR_", "NUMBA_", "NPY_", "DNNL_", "ONEDNN_", "ATEN_",
    "PYTORCH_", "TORCH", "TRITON_", "TF_", "KERAS_", "XLA_", "JAX_", "TENSORBOARD_",
    "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "DATASETS_", "TOKENIZERS_", "DIFFUSERS_", "SAFETENSORS_", "MPL",
    "AWS_", "GOOGLE_", "CLOUDSDK_", "AZURE_",
)  # fmt: skip

PLACE_NAMES = frozenset(
    {
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE",
        "TF_CONFIG", "NCCL_COMM_ID", "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_LOCAL_DEVICE_IDS",
    }
)  # fmt: skip
PLACE_PREFIXES = (
    "SLURM", "SBATCH_", "PMI", "OMPI_", "PRTE_", "MPI", "HOROVOD_", "TORCHELASTIC_", "MASTER_", "PYTHON",
)  # fmt: skip
"""Beginnings of names of variables that give a process its part in a larger program, or the code that it loads. A worker inherits
one only if a setting names it or a pattern contains the beginning: a wider pattern (`TORCH*`, `*`) does not add it."""

_PATTERN = re.compile(r"\*|[A-Za-z_][A-Za-z0-9_]*\*?")


class BadPattern(ValueError):
    """`str(error)` says what is wrong with the setting and what is allowed."""


def read_patterns(text: str) -> tuple[str, ...]:
    """Names and patterns of the setting. Raises BadPattern."""
    patterns = tuple(part.strip() for part in text.split(",") if part.strip())
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise BadPattern(
                f"{SETTING} has {pattern!r}, but must be names of variables, or beginnings of names with a star, and commas "
                "between them, such as WANDB_API_KEY,MY_LAB_*."
            )
        if pattern.startswith(OWN_PREFIX):
            raise BadPattern(
                f"{SETTING} has {pattern}, but no worker gets variables of Tenuto's own, as some are secret; leave it out."
            )
    return patterns


def inherits(name: str, more: Iterable[str] = ()) -> bool:
    """True if workers get the variable. `more`: names and patterns that the operator added."""
    if name.startswith(OWN_PREFIX):
        return name in HANDED_DOWN
    place = _place(name)
    if not place and (name in NAMES or name.startswith(PREFIXES)):
        return True
    return any(_adds(pattern, name, place) for pattern in more)


def inherited(base: Mapping[str, str], more: Collection[str] = ()) -> dict[str, str]:
    """Variables that workers get."""
    return {name: value for name, value in base.items() if inherits(name, more)}


def left_out(base: Iterable[str], more: Collection[str] = ()) -> list[str]:
    """Names that workers do not get and that an operator could add, sorted."""
    return sorted(name for name in base if not name.startswith(OWN_PREFIX) and not inherits(name, more))


def _place(name: str) -> str:
    """Entry of PLACE_NAMES or PLACE_PREFIXES that the name matches; empty if none."""
    return name if name in PLACE_NAMES else next((prefix for prefix in PLACE_PREFIXES if name.startswith(prefix)), "")


def _adds(pattern: str, name: str, place: str) -> bool:
    if not pattern.endswith("*"):
        return pattern == name
    beginning = pattern[:-1]
    return name.startswith(beginning) and (not place or beginning.startswith(place))
