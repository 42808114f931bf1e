"""Runtimes: ways of running workers. One protocol (`runtime.py`), and a folder for each implementation. The rest of the agent
knows only the protocol. `choose.py` selects the runtime; tests/contract/test_runtime.py tests each of them."""
