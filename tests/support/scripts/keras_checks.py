"""Prints what a Keras trial's methods and callbacks are refused for, as JSON: by case, the sentence or null."""

import json

import keras

from tenuto.keras import KerasTrial
from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.keras import callbacks
from tenuto.workers.keras.context import KerasTrialContext


def callback(**members):
    return type("Mine", (keras.callbacks.Callback,), members)()


def trial(**members):
    members = {name: lambda self: None for name in ("build_model", "build_training_data", "build_validation_data")} | members
    return type("MyTrial", (KerasTrial,), members)(None)


def refused(check, *arguments):
    try:
        return check(*arguments)
    except UserError as error:
        return str(error)


def batch_size(slots):
    config = {"name": "x", "resources": {"slots_per_trial": slots}}
    info = TrialInfo(1, "1-1", 1, 1, {"global_batch_size": 8}, config)
    return KerasTrialContext(info).get_per_slot_batch_size()


print(
    json.dumps(
        {
            "usual": refused(
                callbacks.check_callback,
                callback(on_epoch_end=lambda self, epoch, logs=None: 0, on_train_end=lambda self, logs: 0),
            ),
            "library": refused(callbacks.check_callback, keras.callbacks.EarlyStopping()),
            "elsewhere": refused(callbacks.check_callback, callback(on_train_workload_end=lambda self, total, logs: 0)),
            "state": refused(callbacks.check_callback, callback(get_state=lambda self: 0)),
            "misspelt": refused(callbacks.check_callback, callback(on_epochs_end=lambda self, epoch, logs: 0)),
            "arguments": refused(callbacks.check_callback, callback(on_epoch_end=lambda self, epoch: 0)),
            "whole": refused(callbacks.check_trial, trial()),
            "method": refused(callbacks.check_trial, trial(build_model=lambda self, context: 0)),
            "foreign": refused(callbacks.check_trial, trial(keras_callbacks=lambda self: [])),
            "doubt": refused(callbacks.check_trial, trial(build_callback=lambda self: [])),
            "one slot": refused(batch_size, 1),
            "two slots": refused(batch_size, 2),
            "elastic": refused(batch_size, {"min": 1, "max": 2}),
        }
    )
)
