"""What runs around a user's trial in the worker process: talks to the agent, owns the training loop, saves and resumes.

Nothing here imports a framework; `tenuto.workers.pytorch` fills in the `Trainer` of this package.
"""
