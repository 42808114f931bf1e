"""An agent process with fake workers, for tests that kill it: `python run_agent.py <grace seconds>`, settings by environment.

`TEST_SIGNAL_AT_END="10 at_exit"`: the process gets this signal when it ends (`loop_closed`: as soon as its event loop is
closed)."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
from pathlib import Path

from tenuto.workers.agent import app, main


def signal_at_end(number: int, moment: str) -> None:
    def send() -> None:
        os.kill(os.getpid(), number)

    if moment == "at_exit":
        atexit.register(send)
        return

    class Loop(asyncio.SelectorEventLoop):
        def close(self) -> None:
            super().close()
            send()

    class Policy(asyncio.DefaultEventLoopPolicy):
        _loop_factory = Loop

    asyncio.set_event_loop_policy(Policy())


if __name__ == "__main__":
    command = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
    app.AgentApp.__init__.__kwdefaults__["command"] = command
    if told := os.environ.get("TEST_SIGNAL_AT_END"):
        signal_at_end(int(told.split()[0]), told.split()[1])
    main.main()
