"""A trial whose loss is another in each batch."""

from tests.support.exact_trials import Training


class Changed(Training):
    """Its loss depends on `change()`, a number that is another in each batch."""

    def change(self):
        raise NotImplementedError

    def loss(self, output, target):
        return super().loss(output, target) * (1 + 0.1 * float(self.change()))


def of(change):
    """Trial with this function as `change`."""
    return type(change.__name__.title(), (Changed,), {"change": lambda self: change(), "__module__": change.__module__})
