"""An agent process with fake workers, for tests that kill it: `python run_agent.py <grace seconds>`, settings by environment."""

from __future__ import annotations

import sys
from pathlib import Path

from tenuto.workers.agent import app, main

if __name__ == "__main__":
    command = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
    app.AgentApp.__init__.__kwdefaults__["command"] = command
    main.main()
