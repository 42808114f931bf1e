"""Which variables of an agent reach its workers."""

from __future__ import annotations

import pytest

from tenuto.workers.agent.runtimes.process.inheriting import BadPattern, inherited, left_out, read_patterns

OF_THE_MACHINE = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CACHE_HOME", "https_proxy", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
    "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES", "NCCL_DEBUG", "GLOO_SOCKET_IFNAME", "UCX_TLS", "FI_PROVIDER", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_MAX_THREADS", "KMP_AFFINITY", "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TF_CPP_MIN_LOG_LEVEL", "KERAS_BACKEND", "KERAS_HOME", "XLA_FLAGS",
    "JAX_PLATFORMS", "HF_HOME", "TRANSFORMERS_OFFLINE", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID",
    "TENUTO_CLUSTER_DIRECTORY",
]  # fmt: skip
OF_THE_AGENT = [
    "SLURM_PROCID", "SLURM_NTASKS", "SLURMD_NODENAME", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "PMI2_FD",
    "OMPI_COMM_WORLD_RANK", "PRTE_LAUNCHED", "MPIEXEC_RANK", "MPI_LOCALRANKID", "RANK", "WORLD_SIZE", "LOCAL_RANK",
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TF_CONFIG", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONSTARTUP",
    "NCCL_COMM_ID", "JAX_PROCESS_ID", "HOROVOD_RANK", "KUBERNETES_SERVICE_HOST", "ACCELERATE_USE_FSDP", "PWD",
    "WANDB_API_KEY",
]  # fmt: skip
TENUTOS_OWN = ("TENUTO_NATS_PASSWORD", "TENUTO_TOKEN", "TENUTO_WORKER_INHERITS")
ENVIRONMENT = dict.fromkeys((*OF_THE_MACHINE, *OF_THE_AGENT, *TENUTOS_OWN), "x")


def test_a_worker_gets_what_describes_its_machine_and_nothing_of_the_agents_own_place() -> None:
    assert inherited(ENVIRONMENT) == dict.fromkeys(OF_THE_MACHINE, "x")
    assert left_out(ENVIRONMENT) == sorted(OF_THE_AGENT)


@pytest.mark.parametrize(
    ("setting", "added"),
    [
        ("", set()),
        ("WANDB_API_KEY, PYTHONPATH", {"WANDB_API_KEY", "PYTHONPATH"}),
        ("SLURM_*", {"SLURM_PROCID", "SLURM_NTASKS"}),
        ("PMI*", {"PMI_RANK", "PMI_SIZE", "PMIX_RANK", "PMI2_FD"}),
        ("T*,N*,J*,WORLD*,P*", {"PWD"}),
        ("*", {"KUBERNETES_SERVICE_HOST", "ACCELERATE_USE_FSDP", "PWD", "WANDB_API_KEY"}),
    ],
)
def test_an_operator_adds_names_and_beginnings_but_no_place_by_the_way(setting: str, added: set[str]) -> None:
    more = read_patterns(setting)
    assert inherited(ENVIRONMENT, more) == dict.fromkeys((*OF_THE_MACHINE, *added), "x")
    assert set(left_out(ENVIRONMENT, more)) == set(OF_THE_AGENT) - added


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("MY-NAME", "has 'MY-NAME', but must be names of variables, or beginnings of names with a star"),
        ("A*B", "has 'A*B', but must be"),
        ("HOME TERM", "has 'HOME TERM', but must be"),
        ("TENUTO_TOKEN", "has TENUTO_TOKEN, but no worker gets variables of Tenuto's own"),
        ("TENUTO_*", "no worker gets variables of Tenuto's own"),
    ],
)
def test_what_cannot_be_added_is_said(setting: str, words: str) -> None:
    with pytest.raises(BadPattern) as found:
        read_patterns(f"WORD,{setting}")
    assert words in str(found.value)
    assert str(found.value).startswith("TENUTO_WORKER_INHERITS ")
