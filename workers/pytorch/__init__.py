"""The PyTorch Trial API: you write model, optimizer, data loaders, one training step and one evaluation step; the harness owns
the loop, reports, checkpoints, preemption and exact resume. Users import it as `tenuto.pytorch`."""
