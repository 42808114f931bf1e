"""The harness: runs a user's trial in the worker process. It talks to the agent, owns the training loop, saves and resumes.

Nothing here imports or names a framework: each implements `Trainer` and `Framework` of this package, and is found by its entry
point.
"""
