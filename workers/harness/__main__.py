"""`python -m tenuto.workers.harness`: started by the agent, one process per rank."""

import os
import sys

if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ:
        # Else the order of sets of strings would differ in each process, and a resumed trial from an uninterrupted one.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    from tenuto.workers.harness.main import main

    main()
