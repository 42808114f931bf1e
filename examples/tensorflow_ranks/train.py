"""A training loop of one's own in TensorFlow, on one slot or several: MultiWorkerMirroredStrategy finds the other ranks in
TF_CONFIG, which `distributed: {strategy: multi_worker_mirrored}` sets. Every rank runs this file.

In a cluster: tenuto exp create config.yaml . --follow
By hand:      python train.py
"""

import tensorflow as tf

import tenuto

RECORDS = 600


def points(seed):
    """Points in and outside a circle."""
    xy = tf.random.stateless_uniform((RECORDS, 2), (seed, 0), minval=-1.0)
    return xy, tf.cast(tf.norm(xy, axis=1, keepdims=True) < 0.8, tf.float32)


def main():
    # For the same bits after each resume: one thread per slot, and no operation whose result depends on timing.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    with tenuto.init("config.yaml", hyperparameters={"learning_rate": 0.01}) as run:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any tensor is made
        tf.keras.utils.set_random_seed(run.trial_seed % 2**31)
        batch_size = run.hyperparameters["batch_size"]
        run.epoch_batches = RECORDS // batch_size
        with strategy.scope():
            model = tf.keras.Sequential(
                [tf.keras.layers.Input((2,)), tf.keras.layers.Dense(32, "relu"), tf.keras.layers.Dense(1)]
            )
            optimizer = tf.keras.optimizers.Adam(run.hyperparameters["learning_rate"])
            optimizer.build(model.trainable_variables)
        # Every rank reads all batches in the same order, and trains on its share of each: so one iterator is the place of all.
        batches = iter(tf.data.Dataset.from_tensor_slices(points(1)).shuffle(200, seed=3).repeat().batch(batch_size))
        everything = tf.train.Checkpoint(model=model, optimizer=optimizer, batches=batches)
        inside, truth = points(2)

        @tf.function
        def step(x, y):
            def share_of_step(x, y):
                with tf.GradientTape() as tape:
                    losses = tf.nn.sigmoid_cross_entropy_with_logits(y, model(x, training=True))
                    loss = tf.nn.compute_average_loss(losses, global_batch_size=batch_size)  # over the records of all ranks
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))  # sums over the ranks
                return loss

            return strategy.reduce("sum", strategy.run(share_of_step, args=(x, y)), axis=None)

        def accuracy():
            return float(tf.reduce_mean(tf.cast((model(inside) > 0) == (truth > 0.5), tf.float32)))

        def save():
            with run.checkpoint.save(steps) as directory:  # all ranks write; what rank 0 wrote is kept
                everything.write(str(directory / "state"))

        steps = 0
        if run.checkpoint.latest is not None:
            with run.checkpoint.restore() as directory:
                everything.read(str(directory / "state")).assert_consumed()
            steps = run.checkpoint.latest.steps

        for operation in run.operations():
            while steps < operation.steps and not run.should_preempt():
                x, y = next(batches)
                loss = step(x[run.rank :: run.slots], y[run.rank :: run.slots])
                steps += 1
                if run.should_report(steps):
                    run.report_training(steps, {"loss": loss})
                if run.should_save(steps) and steps < operation.steps:
                    save()
            save()  # before the validation: a search that reacts to it may count on the checkpoint
            if steps == operation.steps:
                run.report_validation(steps, {"accuracy": accuracy()})


if __name__ == "__main__":
    main()
