"""The jobs' models, losses and proximal SGD in PyTorch, as a user of pfl or Flower would write them."""

import torch
from torch.nn import functional

from benchmarks.peers.jobs import Job
from benchmarks.peers.models import L1, Leaves, Multinomial, Network, Nuclear, Squares


class Module(torch.nn.Module):
    """Parameters by the jobs' names (with _ for the dots, which PyTorch keeps for itself)."""

    def __init__(self, w0: Leaves):
        super().__init__()
        self.names = list(w0)
        for name, leaf in w0.items():
            self.register_parameter(inner(name), torch.nn.Parameter(torch.tensor(inward(leaf))))

    def leaves(self) -> Leaves:
        """The parameters as the jobs have them."""
        return {name: outward(getattr(self, inner(name)).detach().numpy()).copy() for name in self.names}


class SquaresModule(Module):
    """Linear regression."""

    def loss(self, X, y):
        return ((X.flatten(1) @ self.coef.flatten() - y) ** 2).mean() / 2


class MultinomialModule(Module):
    """Multinomial logistic regression."""

    def loss(self, X, y):
        return functional.cross_entropy(torch.addmm(self.intercept, X, self.coef), y)


class NetworkModule(Module):
    """The convolutional network."""

    def loss(self, X, y):
        h, last = X.unsqueeze(1), len(self.names) // 2 - 1
        for i in range(last + 1):
            kernel, bias = getattr(self, f"layers_{i}_kernel"), getattr(self, f"layers_{i}_bias")
            if kernel.ndim == 4:
                h = functional.max_pool2d(functional.relu(functional.conv2d(h, kernel, bias, padding=1)), 2)
                continue
            # The jobs flatten images with the maps last.
            h = h.permute(0, 2, 3, 1).flatten(1) if h.ndim == 4 else h
            h = torch.addmm(bias, h, kernel)
            h = functional.relu(h) if i < last else h
        return functional.cross_entropy(h, y)


MODULES = {Squares: SquaresModule, Multinomial: MultinomialModule, Network: NetworkModule}


def module_of(job: Job, w0: Leaves) -> Module:
    """The job's model at its start."""
    return MODULES[type(job.model)](w0)


def low_rank(v, t):
    """The singular values towards 0 by t."""
    u, s, vt = torch.linalg.svd(v, full_matrices=False)
    return (u * functional.relu(s - t)) @ vt


SHRINK = {L1: functional.softshrink, Nuclear: low_rank}


def prox_of(job: Job):
    """(tensor, step) -> the prox of step times the regularizer."""
    shrink, strength = SHRINK[type(job.regularizer)], job.regularizer.strength
    return lambda v, step: shrink(v, step * strength)


class ProxSGD(torch.optim.SGD):
    """SGD whose step is followed by a prox of length `span` (None: of the learning rate)."""

    def __init__(self, parameters, lr, prox, span=None):
        super().__init__(parameters, lr=lr)
        self.prox, self.span = prox, span

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.prox(p, group["lr"] if self.span is None else self.span))


def inner(name: str) -> str:
    """A leaf's name inside a PyTorch module."""
    return name.replace(".", "_")


def inward(leaf):
    """A convolution's kernel is (height, width, in, out) in the jobs and (out, in, height, width) in PyTorch."""
    return leaf.transpose(3, 2, 0, 1).copy() if leaf.ndim == 4 else leaf


def outward(leaf):
    """Back from `inward`."""
    return leaf.transpose(2, 3, 1, 0) if leaf.ndim == 4 else leaf
