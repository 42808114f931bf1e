"""A script whose trial cannot be made."""

import sys

import determined as det
from determined import pytorch


class Refusing(pytorch.PyTorchTrial):
    def __init__(self, context):
        if "refuse" in sys.argv:
            raise det.InvalidHP("lr and batch size do not fit")
        raise ValueError("the data set is not where it should be")

    def build_training_data_loader(self):
        return None

    def build_validation_data_loader(self):
        return None

    def train_batch(self, batch, epoch_idx, batch_idx):
        return {}


with pytorch.init() as context:
    Refusing(context)
