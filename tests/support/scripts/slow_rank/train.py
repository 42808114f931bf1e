"""Trains on several ranks, connected by what its argument says. TEST_SLOW: a rank, and the seconds it sleeps in each step."""

import os
import sys
import time

import tenuto


def slow_part(rank):
    slow, seconds = os.environ["TEST_SLOW"].split()
    if rank == int(slow):
        time.sleep(float(seconds))


def torch_step(kind, rank):
    import torch
    import torch.distributed as dist
    from torch import nn

    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    if kind == "horovod":
        import horovod.torch as hvd

        hvd.init()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    else:
        dist.init_process_group("gloo")
        if kind == "ddp":
            model = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step():
        slow_part(rank)
        inputs = torch.randn(4, 8)
        optimizer.zero_grad()
        (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
        if kind == "plain":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()

    return step


def tensorflow_step(rank):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weights = tf.Variable(tf.ones((8, 1)))
        optimizer = tf.keras.optimizers.SGD(0.05)
        optimizer.build([weights])

    @tf.function
    def train(x):
        def share(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ weights - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
            optimizer.apply([tape.gradient(loss, weights)], [weights])
            return loss

        return strategy.reduce("mean", strategy.run(share, args=(x,)), axis=None)

    def step():
        slow_part(rank)
        train(tf.random.normal((4, 8)))

    return step


def main():
    kind = sys.argv[1]
    with tenuto.init() as run:
        step = tensorflow_step(run.rank) if kind == "tensorflow" else torch_step(kind, run.rank)
        steps = 0
        for operation in run.operations():
            while steps < operation.steps and not run.should_preempt():
                step()
                steps += 1


if __name__ == "__main__":
    main()
