"""`python -m tenuto.workers.harness`: started by the agent, one process per rank."""

import os
import signal
import sys

if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ or not sys.flags.safe_path:
        # Otherwise sets of strings would be ordered differently in each process, and a resumed trial would differ.
        os.environ.setdefault("PYTHONHASHSEED", "0")
        # -P: the user's directory is the current one, and this package must not import a `grpc.py` from it.
        os.execv(sys.executable, [sys.executable, "-P", *sys.orig_argv[1:]])
    # An agent started by nohup, or in the background of a script, ignores these signals, and workers would inherit that.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from tenuto.workers.launch.memory_protection import become_private

    become_private()
    from tenuto.workers.harness.main import main

    main()
