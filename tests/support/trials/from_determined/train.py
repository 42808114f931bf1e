"""The same trial in the form of 0.38: a script that trains it itself."""

import logging

import determined as det
from determined import pytorch
from model_def import Points

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    assert info is not None
    with pytorch.init(hparams={**info.trial.hparams, "lr": 0.2}) as context:
        trainer = pytorch.Trainer(Points(context), context)
        trainer.fit(
            max_length=pytorch.Epoch(2),
            validation_period=pytorch.Batch(3),
            checkpoint_period=pytorch.Batch(2),
            reporting_period=pytorch.Batch(2),
            latest_checkpoint=info.latest_checkpoint,
        )
    print("after fit", flush=True)
