"""The searcher's core under a virtual clock: learning curves instead of training."""
