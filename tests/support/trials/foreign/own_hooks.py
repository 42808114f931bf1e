"""Trials whose hooks, and functions of schedulers, remember something."""

import functools

import torch
from changed import Deep, context_mode


def scaling():
    calls = 0

    def hook(module, arguments, output):
        nonlocal calls
        calls += 1
        return output * (1 + 1 / calls)

    return hook


class HookClosure(Deep):
    def __init__(self, context):
        super().__init__(context)
        self.model[0].register_forward_hook(scaling())


class PreHookClosure(Deep):
    def __init__(self, context):
        super().__init__(context)
        hook = scaling()
        self.model[2].register_forward_pre_hook(lambda module, arguments: (hook(module, (), arguments[0]),))


class Tracker:
    def __init__(self):
        self.calls = 0

    def __call__(self, module, arguments, output):
        self.calls += 1
        return output * (1 + 1 / self.calls)

    def hook(self, module, arguments, output):
        return self(module, arguments, output)


class HookObject(Deep):
    def __init__(self, context):
        super().__init__(context)
        self.model[0].register_forward_hook(Tracker())


class HookMethod(Deep):
    def __init__(self, context):
        super().__init__(context)
        self.model[0].register_forward_hook(Tracker().hook)


class HookPartial(Deep):
    def __init__(self, context):
        super().__init__(context)
        self.model[0].register_forward_hook(functools.partial(appending, [1.0]))


def appending(memory, module, arguments, output):
    memory.append(memory[-1] * 0.9)
    return output * (1 + memory[-1])


class HookOfGradient(Deep):
    def __init__(self, context):
        super().__init__(context)
        hook = scaling()
        self.model[0].weight.register_hook(lambda gradient: hook(None, (), gradient))


class HookOfBackward(Deep):
    def __init__(self, context):
        super().__init__(context)
        hook = scaling()
        self.model[2].register_full_backward_hook(lambda module, into, out: tuple(hook(None, (), one) for one in into))


class HookOfOptimizer(Deep):
    def __init__(self, context):
        super().__init__(context)
        calls = 0

        def before(optimizer, arguments, named):
            nonlocal calls
            calls += 1
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 / calls

        self.optimizer.register_step_pre_hook(before)


class RateOfClosure(Deep):
    """The rate follows what a function remembers."""

    def __init__(self, context):
        super().__init__(context)
        calls = 0

        def rate(step):
            nonlocal calls
            calls += 1
            return 1 / calls

        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.LambdaLR(self.optimizer, rate), context_mode("STEP_EVERY_OPTIMIZER_STEP")
        )


class HookRemoved(Deep):
    """A hook of the beginning that is removed."""

    def __init__(self, context):
        super().__init__(context)
        self.handle = self.model[0].register_forward_hook(doubled)

    def during(self, batches):
        if batches == 2:
            self.handle.remove()


class HookAdded(Deep):
    """A function of the module that becomes a hook."""

    def during(self, batches):
        if batches == 2:
            self.model[0].register_forward_hook(doubled)


def doubled(module, arguments, output):
    return output * 2
