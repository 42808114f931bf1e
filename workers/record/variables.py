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
_SECRET_PARTS = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|PASSCODE|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|BEARER|COOKIE", re.IGNORECASE
)
_SECRET_WORDS = frozenset(
    ["AUTH", "CRED", "CREDS", "DSN", "JWT", "KEY", "KEYS", "OTP", "PASS", "PAT", "PIN", "PW", "PWD", "SALT", "SAS", "SIGNATURE"]
)
"""Words of names of variables whose values are secret in practice. Hiding one too many costs a value in a comparison; one too few
is in the record for ever."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
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


def is_secret(name: str) -> bool:
    """True for the name of a variable whose value is a secret, as far as names tell."""
    words = [word.upper() for word in _WORD.findall(name)]
    return bool(_SECRET_PARTS.search(name)) or any(word in _SECRET_WORDS or word.endswith("PWD") for word in words)


def masked(name: str, value: str) -> str:
    """The value, with everything that is or looks secret masked, and bounded."""
    if is_secret(name):
        return MASK
    return _KEY_SHAPE.sub(MASK, _CREDENTIALS_IN_URL.sub(f"{MASK}@", value))[:VALUE_CHARACTERS_MAX]
