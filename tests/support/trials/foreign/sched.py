"""A module of the user's with the name of one of Python's."""

from tests.support.exact_trials import Training

calls = 0


class Remembered:
    def __init__(self):
        self.sums = []


REMEMBERED = Remembered()


class NamedAsPythons(Training):
    def loss(self, output, target):
        global calls
        calls += 1
        REMEMBERED.sums.append(calls)
        return super().loss(output, target) * (1 + 0.1 * calls + 0.01 * sum(REMEMBERED.sums))
