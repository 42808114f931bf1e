"""A Horovod script for TensorFlow, with a Keras 3 model in a loop of its own."""

import horovod.tensorflow as hvd
import tensorflow as tf

import tenuto

hvd.init()
tf.keras.utils.set_random_seed(1 + hvd.rank())  # different weights and data: the broadcast and the averages make up for it
model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD(0.1)
weights = [variable.value for variable in model.trainable_variables]
hvd.broadcast_variables(weights, root_rank=0)


@tf.function
def step(x):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean((model(x) - tf.reduce_sum(x, axis=1, keepdims=True)) ** 2)
    optimizer.apply(tape.gradient(loss, weights), model.trainable_variables)
    return loss


with tenuto.init() as run:
    steps = 0
    for operation in run.operations():
        while steps < operation.steps:
            loss = step(tf.random.normal((8, 4)))
            steps += 1
        every = hvd.allgather(tf.reshape(weights[0], (1, -1)))
        spread = float(tf.reduce_max(tf.abs(every - every[0])))
        run.report_validation(steps, {"loss": float(loss), "ranks": hvd.size(), "spread": spread})
