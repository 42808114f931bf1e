"""Starts the ranks of a trial that trains on several slots, and ends them together.

One supervisor process per agent (`supervisor`), started by the agent like any worker, starts one process per local slot. Each
supervisor of a gang has one TCP connection to that of rank 0, which decides what concerns all ranks (`coordinator`).
`gang` is the ranks' side of it.
"""
