"""Environment variables that can change a run's results, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tenuto.schemas.record import is_of_the_run

PREFIXES = (
    "ATEN_", "BLIS_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "GOMP_", "HF_", "JAX_", "KMP_", "MKL_", "NCCL_", "NPY_", "NUMBA_",
    "NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTORCH_", "TF_", "TOKENIZERS_", "TORCH", "TRANSFORMERS_", "XLA_",
)  # fmt: skip
NAMES = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_ARENA_MAX", "PYTHONPATH", "PYTHONOPTIMIZE", "LANG",
                   "LC_ALL", "TZ"})  # fmt: skip
VARIABLES_MAX = 500
VALUE_CHARACTERS_MAX = 1_000
MASK = "(hidden)"
_SECRET = re.compile(r"TOKEN(?!IZ)|SECRET|PASSW|CREDENTIAL|PRIVATE|APIKEY|(^|_)(KEY|AUTH|PWD|PASS)(_|$)", re.IGNORECASE)
_CREDENTIALS_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_KEY_SHAPE = re.compile(r"\b(hf_|sk-|ghp_|github_pat_|AKIA|xox[a-z]-)[A-Za-z0-9_-]{12,}")


def variables_that_matter(environment: Mapping[str, str], also: Iterable[str] = (), secret: Iterable[str] = ()) -> dict[str, str]:
    """Variables that matter. `also`: names that the experiment itself sets; `secret`: those with secret values. Tenuto's own
    are left out: they name the run, not its environment."""
    wanted, hidden = set(also), set(secret)
    found = {}
    for name in sorted(environment):
        matters = name in wanted or name in NAMES or name.startswith(PREFIXES)
        if matters and not is_of_the_run(name) and not name.startswith("TENUTO_"):
            found[name] = MASK if name in hidden else masked(name, environment[name])
    return dict(list(found.items())[:VARIABLES_MAX])


def masked(name: str, value: str) -> str:
    """The value, with everything that is or looks secret masked, and bounded."""
    if _SECRET.search(name):
        return MASK
    return _KEY_SHAPE.sub(MASK, _CREDENTIALS_IN_URL.sub(f"{MASK}@", value))[:VALUE_CHARACTERS_MAX]
