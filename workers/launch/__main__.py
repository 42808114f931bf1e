"""`python -m tenuto.workers.launch`: started by the agent, one per gang and agent."""

import os
import sys

if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ or not sys.flags.safe_path:
        os.environ.setdefault("PYTHONHASHSEED", "0")  # for the ranks, see harness/__main__.py
        os.execv(sys.executable, [sys.executable, "-P", *sys.orig_argv[1:]])
    from tenuto.workers.launch.supervisor import main

    main()
