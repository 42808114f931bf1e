"""Workers that stay for the next trial of their experiment: what it sees, and which are not used again."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenuto.embedded.nats import NatsServer
from tenuto.kernel.confinement import can_confine
from tenuto.workers.agent.runtimes import forks
from tenuto.workers.agent.runtimes.process import warm
from tenuto.workers.agent.runtimes.process.processes import marked
from tenuto.workers.harness.zygote import KEPT_SECONDS_VARIABLE
from tests.support.kept_bench import TRIAL, KeptBench, config_of, kept_bench, trial_that
from tests.support.runtimes import work_of

CHANGES = trial_that(
    "import asyncio, ctypes, decimal, locale, socket, logging, signal, tempfile, threading, time, warnings",
    "found = {",
    "    'rounding': decimal.getcontext().prec, 'umask': os.umask(0o22), 'errors': numpy.geterr()['over'],",
    "    'levels': [logging.getLogger().level, logging.getLogger('here').level, len(logging.getLogger().handlers)],",
    "    'filters': len(warnings.filters), 'signal': str(signal.getsignal(signal.SIGUSR1)), 'path': len(sys.path),",
    "    'meta': len(sys.meta_path), 'limit': sys.getrecursionlimit(), 'print': str(torch.tensor(1 / 3)),",
    "    'benchmark': torch.backends.cudnn.benchmark, 'precision': torch.get_float32_matmul_precision(),",
    "    'hooks': len(nn.modules.module._global_forward_hooks), 'grad': torch.is_grad_enabled(), 'stdout': sys.stdout.name,",
    "    'builtin': hasattr(__builtins__, 'here') or 'here' in vars(__import__('builtins')), 'variables': len(os.environ),",
    "    'mine': 'mine' in sys.modules, 'temporary': tempfile.gettempdir() == os.environ['TMPDIR'],",
    "    'zone': time.tzname, 'way': [sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.errors],",
    "    'backward': torch._C._is_multithreading_enabled(), 'rounds': torch.backends.fp32_precision,",
    "    'count': torch.get_num_threads(),",
    "    'threads': threading.active_count(), 'calls': len(CALLS), 'device': str(torch.ones(1).device),",
    "}",
    "found['flags'] = [torch.backends.mha.get_fastpath_enabled(), torch.is_warn_always_enabled(),",
    "    torch._C._get_nnpack_enabled(), torch.backends.cuda.matmul.allow_fp16_accumulation,",
    "    torch.sparse.check_sparse_tensor_invariants.is_enabled(), torch.serialization.get_crc32_options(),",
    "    torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed(), torch.is_autocast_enabled('xpu'),",
    "    torch.__future__.get_overwrite_module_params_on_conversion(), torch.distributions.Distribution._validate_args,",
    "    nn.modules.module._global_is_full_backward_hook, len(nn.modules.module._global_forward_hooks_with_kwargs)]",
    "asyncio.get_event_loop().run_until_complete(asyncio.sleep(0)); asyncio.get_event_loop().close()",
    "found['seconds'] = socket.getdefaulttimeout(); socket.setdefaulttimeout(7)",
    "ctypes.CDLL(None).printf(b'of C %s\\n', self.context.get_hparam('word').encode())",
    "print('found ' + json.dumps(found, sort_keys=True))",
    "decimal.getcontext().prec = 7; os.umask(0o77); numpy.seterr(over='ignore'); logging.getLogger().setLevel(10)",
    "logging.getLogger('here').setLevel(10); logging.getLogger().addHandler(logging.StreamHandler())",
    "warnings.simplefilter('ignore'); signal.signal(signal.SIGUSR1, lambda *_: None); sys.path.append('/nowhere')",
    "sys.meta_path.append(None); sys.setrecursionlimit(2000); torch.set_printoptions(precision=2)",
    "torch.backends.cudnn.benchmark = True; torch.set_float32_matmul_precision('medium')",
    "nn.modules.module.register_module_full_backward_hook(lambda *_: None)",
    "nn.modules.module.register_module_forward_hook(lambda *_: None, with_kwargs=True); __import__('builtins').here = 1",
    "os.environ['HERE'] = '1'; sys.modules['mine'] = type(sys)('mine'); os.chdir('/'); sys.stdout = sys.stderr",
    "torch.set_default_device('cpu'); torch.set_default_dtype(torch.float64); CALLS.append(2)",
    "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset(); sys.stdout.reconfigure(line_buffering=False, errors='replace')",
    "torch.autograd.set_multithreading_enabled(False).__enter__(); torch.backends.fp32_precision = 'tf32'",
    "numpy.random.set_bit_generator(numpy.random.MT19937(1)); torch.set_num_threads(3)",
    "torch.backends.mha.set_fastpath_enabled(False); torch.set_warn_always(True); torch._C._set_nnpack_enabled(False)",
    "torch.backends.cuda.matmul.allow_fp16_accumulation = True; torch.sparse.check_sparse_tensor_invariants.enable()",
    "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True); torch.serialization.set_crc32_options(False)",
    "torch.__future__.set_overwrite_module_params_on_conversion(True); torch.set_autocast_enabled('xpu', True)",
    "torch.distributions.Distribution.set_default_validate_args(False)",
    "self.model.double()",
)
LEFT = trial_that(
    "import atexit, subprocess, threading, time",
    "word = self.context.get_hparam('word')",
    "if word == 'thread': threading.Thread(target=time.sleep, args=(600,), daemon=True, name='mine').start()",
    "if word == 'file': sys.kept = open(os.environ['TMPDIR'] + '/open', 'w')",
    "if word == 'process': sys.kept = subprocess.Popen(['sleep', '600'])",
    "if word == 'orphan': os.system('setsid -f sleep 600')",
    "if word == 'function': json.here = lambda: Trial",
    "if word == 'class': json.here = Records",
    "if word == 'library': nn.functional.relu = nn.functional.gelu",
    "if word == 'saved': torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone).__enter__()",
    "if word == 'exit': atexit.register(lambda: print('over', 'model_def' in sys.modules, os.getcwd() != '/'))",
    "if word == 'memory': sys.kept = bytearray(os.urandom(1) * (512 << 20))",
    "if word == 'raises': raise ValueError('this one')",
)
SCRIPT = "import os, tenuto\nprint('seen {\"pid\": %d}' % os.getpid())\nwith tenuto.init() as run:\n    pass\n"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a worker waits longer for its next run than a node's may, and an agent for a worker."""
    monkeypatch.setattr(warm, "FIXED", forks.FIXED | {KEPT_SECONDS_VARIABLE: "120"})
    monkeypatch.setattr(forks, "FORK_SECONDS_MAX", 60.0)


@pytest.fixture
async def bench(nats: NatsServer, tmp_path: Path) -> AsyncIterator[KeptBench]:
    async with kept_bench(nats.url, tmp_path) as bench:
        yield bench


async def test_the_next_trial_has_the_process_and_nothing_of_the_one_before(bench: KeptBench) -> None:
    trials = [bench.assignment(CHANGES, word=word) for word in ("one", "two", "three")]
    assert [await bench.train(trial) for trial in trials] == ["finished"] * 3, bench.control.exits()
    seen = [await bench.seen(trial) for trial in trials]
    assert bench.kept.reused == 2
    assert len({one["pid"] for one in seen}) == 1
    assert [one["trial"] for one in seen] == ["one", "two", "three"]
    await bench.control.until(lambda: all(bench.found(trial) for trial in trials))
    first, second, third = [bench.found(trial) for trial in trials]
    assert first == second == third
    lines = [bench.lines(trial) for trial in trials]
    assert [len([line for line in one if line.startswith("seen ")]) for one in lines] == [1, 1, 1], "each has its own log"
    for one, word in zip(lines, ("one", "two", "three"), strict=True):
        assert [line for line in one if line.startswith("of C")] == [f"of C {word}"], "what C libraries wrote is in the run's log"


async def test_metrics_are_those_of_a_process_of_its_own(bench: KeptBench) -> None:
    own = bench.assignment(reuse=False)
    shared = [bench.assignment() for _ in range(3)]
    for trial in (own, *shared):
        await bench.train(trial)
    assert bench.kept.reused == 2
    assert [bench.metrics(trial) for trial in shared] == [bench.metrics(own)] * 3


async def test_what_is_left_of_a_trial_is_not_the_next_ones(bench: KeptBench) -> None:
    words = {
        "thread": "it left threads (mine)",
        "file": "it left open files",
        "process": "it left processes",
        "orphan": "",  # seen by the leader, who adopts it
        "function": "something outside of it holds the trial's code",
        "class": "something outside of it holds the trial's code (Adam, Net, Records)",
        "library": "torch.nn.functional.relu was replaced",
        "saved": "hooks for saved tensors are still on",
        "exit": "functions for the end of the process were registered",
        "memory": "its memory grew from",
    }
    for word, why in words.items():
        clean = await bench.run(LEFT)  # a first one in a process, which the next has, too
        leaves = bench.assignment(LEFT, word=word)
        assert await bench.train(leaves) == "finished"
        assert (await bench.seen(leaves))["pid"] == clean["pid"]
        assert (await bench.run(LEFT, word="after"))["pid"] != clean["pid"], word
        await bench.control.until(lambda why=why, leaves=leaves: any(why in line for line in bench.lines(leaves)))  # type: ignore[misc]
        if word == "exit":
            await bench.control.until(lambda leaves=leaves: "over True True" in bench.lines(leaves))  # type: ignore[misc]


async def test_a_run_that_failed_and_one_that_was_killed_leave_no_worker(bench: KeptBench) -> None:
    first = await bench.run(LEFT)
    fails = bench.assignment(LEFT, word="raises")
    assert await bench.train(fails) == "failed"
    assert (await bench.seen(fails))["pid"] == first["pid"]
    second = await bench.run(LEFT)
    assert second["pid"] != first["pid"]
    os.kill(second["pid"], signal.SIGKILL)  # while it waits
    third = await bench.run(LEFT)
    assert third["pid"] != second["pid"]
    endless = bench.assignment(LEFT, target_length=10**9)
    await bench.control.assign(endless)
    assert (await bench.seen(endless))["pid"] == third["pid"]
    os.kill(third["pid"], signal.SIGKILL)  # while it trains
    assert (await bench.control.exit_of(endless.allocation_id)).outcome == "lost"
    await bench.control.assign()
    fourth = await bench.run(LEFT)
    assert fourth["pid"] != third["pid"]
    assert set(marked(bench.app._directory)) == {fourth["pid"], psutil.Process(fourth["pid"]).ppid()}


async def test_a_later_run_of_a_process_is_found_again_by_the_next_agent(bench: KeptBench) -> None:
    first = await bench.run()
    endless = bench.assignment(target_length=10**9)
    await bench.control.assign(endless)
    assert (await bench.seen(endless))["pid"] == first["pid"]
    beats = len(bench.control.heartbeats)
    await bench.restart_agent()
    await bench.control.until(lambda: len(bench.control.heartbeats) > beats)
    await bench.control.assign(endless.model_copy(update={"action": "stop"}))
    assert (await bench.control.exit_of(endless.allocation_id)).outcome == "finished"
    await bench.control.assign()
    assert (await bench.run())["pid"] != first["pid"], "its worker did not stay: the agent that it knew is gone"


@pytest.mark.skipif(not can_confine(), reason="needs root")
async def test_a_private_process_stays_too(nats: NatsServer, tmp_path: Path) -> None:
    async with kept_bench(nats.url, tmp_path, worker_confined=1) as bench:
        assert len({(await bench.run())["pid"] for _ in range(3)}) == 1


async def test_another_experiment_code_or_variable_is_another_process(bench: KeptBench) -> None:
    pids = [(await bench.run(**changes))["pid"] for changes in _others()]
    assert len(set(pids)) == len(pids)
    assert bench.kept.reused == 0
    assert len(marked(bench.app._directory)) == 2, "the last one waits; the others have ended before the next began"


def _others() -> list[dict[str, Any]]:
    return [
        {},
        {"experiment_id": 2},
        {"body": f"{TRIAL}\n"},
        {"config": config_of(environment={"variables": {"WORD": "here"}})},
        {"config": config_of(log_period={"batches": 3})},
        {"reuse": False},
        {"reuse": False},
        {},
    ]


async def test_a_run_of_another_runtime_on_its_slots_ends_it(bench: KeptBench) -> None:
    trial = bench.assignment()
    await bench.train(trial)
    assert len(marked(bench.app._directory)) == 2
    other = trial.model_copy(update={"slots": (trial.slots[0].model_copy(update={"slot_ids": (1,)}),)})
    await bench.app.runtime.vacate(work_of(bench.shared, other))
    assert len(marked(bench.app._directory)) == 2, "that is another slot"
    await bench.app.runtime.vacate(work_of(bench.shared, trial))
    assert not marked(bench.app._directory)


async def test_a_paused_trial_leaves_its_worker_to_the_next(bench: KeptBench) -> None:
    first, second = await bench.run(then="pause"), await bench.run()
    assert first["pid"] == second["pid"]


async def test_scripts_have_processes_of_their_own(bench: KeptBench) -> None:
    config = config_of(entrypoint="python3 model_def.py")
    pids = []
    for _ in range(2):
        script = bench.assignment(SCRIPT, config=config)
        await bench.control.until(lambda: bool(bench.control.heartbeats))
        await bench.control.assign(script)
        pids.append((await bench.seen(script))["pid"])
        await bench.control.assign(script.model_copy(update={"action": "stop"}))
        await bench.control.exit_of(script.allocation_id)
        await bench.control.assign()
    assert pids[0] != pids[1]
    assert bench.kept.reused == 0
