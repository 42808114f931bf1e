"""Settings of torch and NumPy that all code of a process shares, for a worker that stays (harness/kept_worker.py): noted before a
run, and given back after it."""

from __future__ import annotations

import gc
import math
import multiprocessing
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer, optimizer
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data._utils import signal_handling

from tenuto.workers.pytorch import seeds, snapshots

_Setting = tuple[Callable[[], Any], Callable[[Any], Any]]
_PATCHED: Sequence[ModuleType | type] = (
    torch, nn, nn.functional, nn.init, torch.optim, torch.autograd, np, np.random, random, math,
    torch.Tensor, nn.Module, nn.Parameter, Optimizer, DataLoader, Dataset, Sampler,
)  # fmt: skip
"""Modules and classes whose functions are compared: one that was put in another's place would serve the next trial, too."""
_PRECISE = tuple(
    f"backends{part}"
    for part in ("", ".cuda.matmul", *(f".{one}{of}" for one in ("cudnn", "mkldnn") for of in ("", ".matmul", ".conv", ".rnn")))
)
"""Places of settings of the precision of 32-bit numbers, the general one first."""
multiprocessing_of_torch: Any = torch.multiprocessing
generators: Any = np.random
_HOOKS = tuple(name for name, value in vars(nn.modules.module).items() if name.startswith("_global_") and isinstance(value, dict))
_AUTOCAST = ("cpu", "cuda", "hpu", "ipu", "maia", "mps", "mtia", "xla", "xpu")
"""Devices with an autocast of their own; torch refuses to speak of those that it does not know."""


def note() -> Callable[[], str]:
    settings = {name: (setting, _now(setting[0])) for name, setting in _settings().items()}
    functions = [(owner, _functions(owner)) for owner in _PATCHED]
    hooks = [(getattr(nn.modules.module, name), dict(getattr(nn.modules.module, name))) for name in _HOOKS]
    of_steps = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
    ours = {id(hook) for table in of_steps for hook in table.values()}
    compiled, gpus = _compiled(), _Gpus()
    saved = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    threads, sharing = torch.get_num_interop_threads(), multiprocessing_of_torch.get_sharing_strategy()
    printed, numpy_printed = dict(vars(torch._tensor_str.PRINT_OPTS)), np.get_printoptions()

    def give_back() -> str:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return "torch.distributed was set up"
        if _compiled() != compiled:
            return "code was compiled (torch.compile), which stays in the process"
        if torch.get_num_interop_threads() != threads:
            return "the number of torch's threads between operations was set, which cannot be changed again"
        torch.set_default_device(None)
        if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
            return "a mode of torch is still on (__torch_function__)"
        for table, before in hooks:
            table.clear()
            table.update(before)
        for of_step in of_steps:
            for key in [key for key, hook in of_step.items() if id(hook) not in ours and hook is not snapshots._before_step]:
                del of_step[key]
        snapshots._before_step()
        seeds._one_device = False
        torch.clear_autocast_cache()
        torch.set_flush_denormal(False)
        multiprocessing_of_torch.set_sharing_strategy(sharing)
        if multiprocessing.get_start_method(allow_none=True) is not None:
            multiprocessing.set_start_method(None, force=True)
        vars(torch._tensor_str.PRINT_OPTS).update(printed)
        np.set_printoptions(**numpy_printed)
        signal_handling._SIGCHLD_handler_set = False  # the handler itself was given back: the next loader sets it again
        if saved is not None and saved(True) is not None:
            return "hooks for saved tensors are still on (torch.autograd.graph)"
        for name, ((read, put), value) in settings.items():
            if _now(read) != value:
                put(value)
                if _now(read) != value:
                    return f"{name} was changed, and cannot be given back"
        for owner, before_functions in functions:
            if changed := _difference(owner, before_functions):
                return f"{owner.__name__}.{changed} was replaced"
        return gpus.clear()

    return give_back


def _settings() -> Mapping[str, _Setting]:
    """Settings by their names: how each is read, and set."""
    cudnn, cuda, mkldnn = torch.backends.cudnn, torch.backends.cuda, torch.backends.mkldnn
    found: dict[str, _Setting] = {}
    # First: where these were set, the older names of the same settings cannot be read.
    for place in _PRECISE:
        owner = _place(place)
        if hasattr(owner, "fp32_precision"):
            found[f"torch.{place}.fp32_precision"] = _attribute(owner, "fp32_precision")
    found |= {
        "the default type of tensors": (torch.get_default_dtype, torch.set_default_dtype),
        "the number of threads": (torch.get_num_threads, torch.set_num_threads),
        "the gradients' mode": (torch.is_grad_enabled, torch._C._set_grad_enabled),
        "detection of anomalies": (
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda value: torch.set_anomaly_enabled(*value),
        ),
        "the precision of matrix products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "deterministic algorithms": (
            lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
            lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        ),
        "the cache of autocast": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
        "the inference mode": (torch.is_inference_mode_enabled, lambda value: None),
        "threads of the backward pass": (
            torch._C._is_multithreading_enabled,
            torch._C._set_multithreading_enabled,
        ),
        "NumPy's generator": (generators.get_bit_generator, generators.set_bit_generator),
        "NumPy's errors": (np.geterr, lambda value: np.seterr(**value)),
    }
    for device in _AUTOCAST:
        found[f"autocast on {device}"] = _autocast(device)
    flags: Sequence[tuple[Any, Sequence[str]]] = (
        (cudnn, ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")),
        (cuda.matmul, ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")),
        (mkldnn, ("enabled", "deterministic", "allow_tf32")),
        (torch.backends.opt_einsum, ("enabled", "strategy")),
        (torch.backends.quantized, ("engine",)),
        (torch.utils.deterministic, ("fill_uninitialized_memory",)),
    )
    for owner, names in flags:
        for name in names:
            if hasattr(owner, name):
                found[f"{getattr(owner, '__name__', 'torch.backends.cuda.matmul')}.{name}"] = _attribute(owner, name)
    for way in ("flash", "mem_efficient", "math", "cudnn"):
        read, put = getattr(cuda, f"{way}_sdp_enabled", None), getattr(cuda, f"enable_{way}_sdp", None)
        if read is not None and put is not None:
            found[f"attention by {way}"] = (read, put)
    return found | _rarely_set()


def _rarely_set() -> dict[str, _Setting]:
    """Settings that have a function for reading and one for setting, or an attribute, where this version of torch has them."""
    pairs = (
        ("backends.mha.get_fastpath_enabled", "backends.mha.set_fastpath_enabled"),
        ("backends.cuda.fp16_bf16_reduction_math_sdp_allowed", "backends.cuda.allow_fp16_bf16_reduction_math_sdp"),
        ("_C._get_nnpack_enabled", "_C._set_nnpack_enabled"),
        ("_C._check_sparse_tensor_invariants", "_C._set_check_sparse_tensor_invariants"),
        ("_C._get_linalg_preferred_backend", "_C._set_linalg_preferred_backend"),
        ("_C._get_blas_preferred_backend", "_C._set_blas_preferred_backend"),
        ("is_warn_always_enabled", "set_warn_always"),
        ("__future__.get_overwrite_module_params_on_conversion", "__future__.set_overwrite_module_params_on_conversion"),
        ("__future__.get_swap_module_params_on_conversion", "__future__.set_swap_module_params_on_conversion"),
        ("serialization.get_crc32_options", "serialization.set_crc32_options"),
        ("serialization.get_default_load_endianness", "serialization.set_default_load_endianness"),
        ("serialization.get_default_mmap_options", "serialization.set_default_mmap_options"),
    )
    attributes = (
        ("backends.cuda.matmul", "allow_fp16_accumulation"),
        ("distributions.Distribution", "_validate_args"),
        ("nn.modules.module", "_global_is_full_backward_hook"),
    )
    found = {f"torch.{read}": (_place(read), _place(put)) for read, put in pairs if _place(read) and _place(put)}
    for place, name in attributes:
        if hasattr(owner := _place(place), name):
            found[f"torch.{place}.{name}"] = _attribute(owner, name)
    return found


def _now(read: Callable[[], Any]) -> Any:
    """Value of a setting; None where torch refuses to say it, because two of its names contradict each other."""
    try:
        return read()
    except RuntimeError:
        return None


def _place(name: str) -> Any:
    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _autocast(device: str) -> _Setting:
    def put(value: Any) -> None:
        torch.set_autocast_enabled(device, value[0])
        torch.set_autocast_dtype(device, value[1])

    return lambda: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)), put


def _attribute(owner: Any, name: str) -> _Setting:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def _functions(owner: ModuleType | type) -> dict[str, Any]:
    kinds = (staticmethod, classmethod)
    return {name: value for name, value in vars(owner).items() if callable(value) or isinstance(value, kinds)}


def _difference(owner: ModuleType | type, before: Mapping[str, Any]) -> str:
    """Name of a function that is not the one that it was; empty: all are."""
    now = vars(owner)
    return next((name for name, value in before.items() if now.get(name) is not value), "")


def _compiled() -> object:
    """Counts of what the compiler has done in this process; None: it is not imported."""
    compiler = sys.modules.get("torch._dynamo.utils")
    return None if compiler is None else {name: dict(counts) for name, counts in compiler.counters.items() if counts}


class _Gpus:
    """The GPUs' memory and streams. They are not touched before the user's code does."""

    def __init__(self) -> None:
        self._first: list[int] | None = None
        """Bytes that are held on each GPU after the first run that used one: libraries keep some."""

    def clear(self) -> str:
        """Gives the memory back. Returns the reason why more is still held than after the first run; empty: it is not."""
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return ""
        gc.collect()
        torch.cuda.synchronize()
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        torch.cuda.empty_cache()
        devices = range(torch.cuda.device_count())
        share = getattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)
        for device in devices:
            torch.cuda.set_stream(torch.cuda.default_stream(device))
            if share(device) != 1.0:
                torch.cuda.set_per_process_memory_fraction(1.0, device)
            torch.cuda.reset_peak_memory_stats(device)
        torch.cuda.set_device(0)
        now = [torch.cuda.memory_allocated(device) for device in devices]
        self._first = now if self._first is None else self._first
        more = sum(held - before for held, before in zip(now, self._first, strict=True) if held > before)
        return f"it still holds memory of a GPU ({more} bytes more than after its first run)" if more else ""
