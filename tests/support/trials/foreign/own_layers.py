"""Trials that freeze and unfreeze layers, add groups to optimizers, and have layers of unusual kinds."""

import copy

import torch
from changed import Deep, context_mode
from torch import nn
from torch.nn.utils import parametrizations, weight_norm


class Frozen(Deep):
    """Frozen in the midst of the training."""

    def during(self, batches):
        self.frozen([0], batches > 1)


class Unfrozen(Deep):
    """Frozen in the beginning, and added to the optimizer when they are unfrozen: one layer after the other."""

    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(self.net())
        self.frozen([0, 2])
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model[4].parameters(), lr=1e-2))
        self.seen, self.losses = [], []

    def during(self, batches):
        for layer, since in ((2, 2), (0, 5)):
            if batches == since:
                self.frozen([layer], False)
                self.add(layer)

    def add(self, layer):
        self.optimizer.add_param_group({"params": list(self.model[layer].parameters()), "lr": 1e-3, "name": f"layer {layer}"})


class UnfrozenWithScheduler(Unfrozen):
    """Torch's schedulers count their rates from the groups that were there."""

    def __init__(self, context):
        super().__init__(context)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        context.wrap_lr_scheduler(self.scheduler, context_mode("MANUAL_STEP"))

    def add(self, layer):
        super().add(layer)
        self.optimizer.param_groups[-1]["initial_lr"] = 1e-3
        self.scheduler.base_lrs.append(1e-3)

    def during(self, batches):
        super().during(batches)
        if batches:
            self.scheduler.step()


class UnfrozenInPlace(Unfrozen):
    """Into the group that is there."""

    def add(self, layer):
        self.optimizer.param_groups[0]["params"].extend(self.model[layer].parameters())


class UnfrozenUnwrapped(Deep):
    """A model and an optimizer that nobody wrapped: the trial holds them."""

    def __init__(self, context):
        super().__init__(context)
        self.other = self.net()
        self.other[0].requires_grad_(False)
        self.inner = torch.optim.Adam(self.other[4].parameters(), lr=1e-2)

    def loss(self, output, target):
        self.inner.zero_grad()
        other = self.other(target)
        (other - target).square().mean().backward()
        self.inner.step()
        return super().loss(output + other.detach(), target)

    def during(self, batches):
        if batches == 2:
            self.other[0].requires_grad_(True)
            self.inner.add_param_group({"params": list(self.other[0].parameters()), "lr": 1e-3})


OTHER = INNER = None


class UnfrozenInGlobal(Deep):
    """The same, in globals."""

    def __init__(self, context):
        global OTHER, INNER
        super().__init__(context)
        OTHER = self.net()
        OTHER[0].requires_grad_(False)
        INNER = torch.optim.Adam(OTHER[4].parameters(), lr=1e-2)

    def loss(self, output, target):
        INNER.zero_grad()
        other = OTHER(target)
        (other - target).square().mean().backward()
        INNER.step()
        return super().loss(output + other.detach(), target)

    def during(self, batches):
        if batches == 2:
            OTHER[0].requires_grad_(True)
            INNER.add_param_group({"params": list(OTHER[0].parameters()), "lr": 1e-3})


class UnfrozenParameter(Deep):
    """A parameter that the trial holds, and a tensor that learns later."""

    def __init__(self, context):
        super().__init__(context)
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)
        self.own = torch.optim.SGD([self.scale], lr=0.01, momentum=0.9)

    def during(self, batches):
        self.scale.requires_grad_(batches > 1)

    def loss(self, output, target):
        if self.scale.requires_grad and self.scale.grad is not None:
            self.own.step()
            self.own.zero_grad()
        return super().loss(output * self.scale, target)


class Removed(Deep):
    """A group that is taken out again."""

    @staticmethod
    def make(parameters):
        first, second, *others = parameters
        return torch.optim.SGD([{"params": [first, second], "lr": 1e-2}, {"params": others}], lr=1e-3, momentum=0.9)

    def during(self, batches):
        if batches == 2:
            self.optimizer.state.pop(self.optimizer.param_groups[0]["params"].pop(), None)
        if batches == 5:
            for parameter in self.optimizer.param_groups.pop(0)["params"]:
                self.optimizer.state.pop(parameter, None)


class Switched(Deep):
    """Some layers are in evaluation mode while others train, and the momentum of a BatchNorm changes."""

    @staticmethod
    def net():
        return nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3), nn.Dropout(0.3), nn.Linear(3, 1))

    def during(self, batches):
        self.model[1].train(batches % 3 != 2)
        self.model[1].momentum = 1 / (1 + batches)
        self.model[2].p = 0.5 / (1 + batches)


class WeightNorm(Deep):
    @staticmethod
    def net():
        return nn.Sequential(parametrizations.weight_norm(nn.Linear(1, 3)), nn.Linear(3, 1))


class OldWeightNorm(Deep):
    @staticmethod
    def net():
        return nn.Sequential(weight_norm(nn.Linear(1, 3)), nn.Linear(3, 1))


class SpectralNorm(Deep):
    @staticmethod
    def net():
        return nn.Sequential(parametrizations.spectral_norm(nn.Linear(1, 3)), nn.utils.spectral_norm(nn.Linear(3, 1)))


class Tied(Deep):
    @staticmethod
    def net():
        net = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 1))
        net[2].weight = net[0].weight
        return net


class Lazy(Deep):
    @staticmethod
    def net():
        return nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.Linear(3, 1))


class ComplexNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, dtype=torch.complex64))

    def forward(self, values):
        return (values * self.weight).abs()


class ComplexParameters(Deep):
    net = ComplexNet


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(22, 3, sparse=True), nn.Linear(3, 1)

    def forward(self, values):
        return self.head(self.table((values.flatten() * 22).round().long() % 22))


class SparseGradients(Deep):
    """With an optimizer for the dense ones, which is wrapped, and SparseAdam, which is not."""

    net = Embedded

    @staticmethod
    def make(parameters):
        return torch.optim.SGD(list(parameters)[1:], lr=1e-2)

    def __init__(self, context):
        super().__init__(context)
        self.sparse = torch.optim.SparseAdam(self.model.table.parameters(), lr=1e-2)

    def during(self, batches):
        self.sparse.step()
        self.sparse.zero_grad()


class Functional(Deep):
    """A copy without state, through torch.func, with weights that are its own."""

    def __init__(self, context):
        super().__init__(context)
        self.weights = {name: value.detach().clone() for name, value in self.model.named_parameters()}

    def loss(self, output, target):
        gradients = torch.func.grad(self.inner)(self.weights, target)
        self.weights = {name: value - 0.1 * gradients[name] for name, value in self.weights.items()}
        return super().loss(output + self.inner(self.weights, target), target)

    def inner(self, weights, target):
        return (torch.func.functional_call(self.model, weights, (target,)) - target).square().mean()


class Teacher(Deep):
    """A frozen copy that the trial holds in a plain list, and follows."""

    def __init__(self, context):
        super().__init__(context)
        self.teachers = [copy.deepcopy(self.model).requires_grad_(False)]

    @torch.no_grad()
    def during(self, batches):
        for mine, theirs in zip(self.teachers[0].parameters(), self.model.parameters(), strict=True):
            mine.lerp_(theirs, 0.1)

    def loss(self, output, target):
        return super().loss(output + self.teachers[0](target), target)
