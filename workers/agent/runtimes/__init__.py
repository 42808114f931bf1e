"""How the agent runs workers: one protocol (`runtime.py`), and a folder for each way to do it. All else of the agent knows the
protocol only. `choose.py` names the runtimes that there are; tests/contract/test_runtime.py tries each of them.
"""
