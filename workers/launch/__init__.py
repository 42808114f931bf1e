"""Starts the ranks of a trial that trains on several slots, and ends them together.

One supervising process per agent (`supervisor`), started by the agent like any worker, starts one process per local slot. The
supervisors of a gang talk over one TCP connection each to that of rank 0, which decides what concerns all ranks (`coordinator`).
What the processes of the ranks do with that is `tenuto.workers.harness.gang`.
"""
