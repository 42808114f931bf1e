"""A worker process for agent tests: speaks the worker protocol, trains nothing. The hyperparameter `mode` says how it behaves.

train     report a checkpoint and a validation at each target, leave when told
crash     write the error file and exit with 1
vanish    exit with 7 without a word
bare      exit with `code` without a word
killed    die by SIGKILL
stubborn  ignore every directive
lingers   tell its end, and leave with 7 when a file is there
helper    start a process in a session of its own that outlives the worker, then behave like `train`
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from typing import Any

import grpc

from tenuto.schemas.assignments import Assignment
from tenuto.schemas.reports import CheckpointReport, ValidationReport
from tenuto.schemas.wire import worker_pb2 as pb
from tenuto.schemas.wire.worker_pb2_grpc import AgentForWorkersStub
from tenuto.workers.launch.token import take_token

ALLOCATION, RANK = os.environ["TENUTO_ALLOCATION_ID"], int(os.environ["TENUTO_RANK"])
METADATA = (("authorization", f"Bearer {take_token(os.environ)}"),)


def call(method: Any, request: Any) -> Any:
    return method(request, metadata=METADATA, timeout=30, wait_for_ready=True)


def main() -> int:
    stub: Any = AgentForWorkersStub(grpc.insecure_channel(os.environ["TENUTO_AGENT_ADDRESS"]))
    hello = call(stub.Hello, pb.HelloRequest(allocation_id=ALLOCATION, rank=RANK, pid=os.getpid()))
    assignment = Assignment.from_json(hello.assignment)
    mode = assignment.hyperparameters.get("mode", "train")
    print(f"hello from {ALLOCATION} in {os.getcwd()} with {os.environ.get('CUDA_VISIBLE_DEVICES')!r}", flush=True)
    if mode == "crash":
        with open(os.environ["TENUTO_ERROR_FILE"], "w") as file:
            file.write("model_def.py:3: ValueError: no data")
        return 1
    if mode == "vanish":
        print("something bad", file=sys.stderr)
        return 7
    if mode == "bare":
        os._exit(int(assignment.hyperparameters["code"]))
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "helper":
        subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    directives: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=watch, args=(stub, directives), daemon=True).start()
    sequence, reached = hello.last_sequence, 0
    while True:
        directive = directives.get()
        if mode == "stubborn":
            continue
        name = pb.Directive.Action.Name(directive.action)
        if name in ("STOP", "PREEMPT", "PAUSE"):
            print(f"leaving: {name}", flush=True)
            code, ending = {"STOP": (0, "finished"), "PREEMPT": (80, "preempted"), "PAUSE": (81, "paused")}[name]
            call(stub.End, pb.EndRequest(allocation_id=ALLOCATION, rank=RANK, ending=ending))
            if mode == "lingers":
                directory = os.environ["TENUTO_RUN"].rpartition(":")[0]
                open(f"{directory}/told", "w").close()
                while not os.path.exists(f"{directory}/go"):
                    threading.Event().wait(0.02)
                os._exit(7)
            return code
        if directive.target_length > reached:
            reached = directive.target_length
            bodies = [
                CheckpointReport(
                    trial_id=assignment.trial_id, allocation_id=ALLOCATION, checkpoint_id=f"{ALLOCATION}-{reached}",
                    batches=reached, length=reached, files=(), size_bytes=0,
                ),
                ValidationReport(
                    trial_id=assignment.trial_id, allocation_id=ALLOCATION, batches=reached, length=reached,
                    metrics={"loss": 1.0 / reached},
                ),
            ]  # fmt: skip
            reports = [
                pb.Report(sequence=sequence + n, lane="tracker", body=body.to_json()) for n, body in enumerate(bodies, start=1)
            ]
            sequence = call(stub.Report, pb.ReportRequest(allocation_id=ALLOCATION, rank=RANK, reports=reports)).last_sequence


def watch(stub: Any, directives: queue.Queue[Any]) -> None:
    while True:
        try:
            for directive in stub.Watch(
                pb.WatchRequest(allocation_id=ALLOCATION, rank=RANK), metadata=METADATA, wait_for_ready=True
            ):
                directives.put(directive)
        except grpc.RpcError:
            threading.Event().wait(0.1)


if __name__ == "__main__":
    sys.exit(main())
