"""The harness: runs a user's trial in the worker process. It talks to the agent, owns the training loop, saves and resumes.

Nothing here imports a framework; `tenuto.workers.pytorch` and its neighbours implement the `Trainer` of this package.
"""
