"""Gradient descent, Adadelta, Adagrad and Adam: autograd for the gradient, torch.optim for the step.

They minimise the same objective as every method here, R(z_L; y) + mu/2 Σ|W|², summed over the samples and so reported;
the gradient is that of its mean over the samples, which is what the published learning rates are for. A step takes the
full batch, as published, or a mini-batch. The objective of a row is added up from the forward passes of the epoch's own
steps, so with the full batch it is the value before the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adadelta, Adagrad, Adam, Optimizer

from pdadmm.checkpoint.restore import SavedRun
from pdadmm.history import Row
from pdadmm.math.activations import Activation, torch_modules
from pdadmm.network import BACKWARD_ROWS
from pdadmm.rivals.rival import Rival

RULES: dict[str, tuple[Callable[..., Optimizer], tuple[str, ...]]] = {
    "gd": (SGD, ()),
    "adadelta": (Adadelta, ("step", "square_avg", "acc_delta")),
    "adagrad": (Adagrad, ("step", "sum")),
    "adam": (Adam, ("step", "exp_avg", "exp_avg_sq")),
}
"""Optimisers, with their defaults but for the learning rate, and the names of what they keep of a parameter."""

_SHUFFLES = 1  # sets these streams apart from those of the first weights


def torch_activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    """f(z), which may overwrite z and whose derivative autograd knows: PyTorch's own, or the mean of its slopes."""

    def by_slopes(z: Tensor) -> Tensor:
        at = z.detach()
        left, right = activation.slopes(at)
        return activation.forward(at, torch.empty_like(at)) + (left + right) / 2 * (z - at)

    kind = torch_modules().get(activation.name)
    if kind is None:
        return by_slopes
    return kind(inplace=True) if issubclass(kind, nn.ReLU | nn.LeakyReLU | nn.Hardtanh) else kind()


class GradientDescent(Rival):
    """Any of them."""

    begins_anew = "the optimiser's state begins anew"
    divergence_advice = "lower --learning-rate, scale the features (--scaling standard), or use --dtype float64"

    def build(self, drawn: bool) -> None:
        """The optimiser."""
        for parameter in (*self.weights, *self.biases):
            parameter.requires_grad_()
        make, self._kept = RULES[self.config.method]
        self._activations = [torch_activation(f) for f in self.activations]
        self._optimiser = make([*self.weights, *self.biases], lr=self.config.learning_rate)

    def restore(self, saved: SavedRun) -> None:
        """The optimiser's state."""
        for layer in range(len(self.weights)):
            for name, parameter in self._named(layer).items():
                shapes = {f"{name}.{key}": () if key == "step" else tuple(parameter.shape) for key in self._kept}
                found = saved.layer(layer, shapes, self.problem.storage)
                state = {key: found[f"{name}.{key}"] for key in self._kept}
                if "step" in state:
                    state["step"] = state["step"].to("cpu", torch.get_default_dtype())  # where and as torch counts them
                self._optimiser.state[parameter].update(state)

    def layer_state(self, layer: int) -> dict[str, Tensor]:
        """Copies: steps are made in place."""
        tensors = {}
        for name, parameter in self._named(layer).items():
            tensors[name] = parameter.detach().clone()
            state = self._optimiser.state[parameter]
            tensors |= {f"{name}.{key}": state[key].to(parameter.dtype, copy=True) for key in self._kept}
        return tensors

    def _named(self, layer: int) -> dict[str, Tensor]:
        return {"W": self.weights[layer], "b": self.biases[layer]}

    def run_epoch(self, epoch: int) -> Row:
        """One step a batch."""
        total = torch.zeros((), dtype=torch.float64, device=self.problem.device)
        for batch in self._batches(epoch):
            total += self._step(*batch)
        return {"objective": float(total)}

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Inputs, targets and weights of all samples, or of a few each in an order by seed and epoch alone."""
        count, size = self.problem.num_samples, self.config.batch_size
        if size is None or size >= count:
            yield self.x, self.y, self.sample_weight
            return
        entropy = np.random.SeedSequence([self.config.seed, epoch], spawn_key=(_SHUFFLES,))
        seed = int(entropy.generate_state(1, np.uint64)[0] >> 1)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).to(self.problem.device)
        for rows in order.split(size):
            yield self.x[rows], self.y[rows], self.sample_weight[rows]

    def _step(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Step down the gradient of the batch; returns its part of the objective before that."""
        self._optimiser.zero_grad()
        part = torch.zeros((), dtype=torch.float64, device=self.problem.device)
        for start in range(0, len(x), BACKWARD_ROWS):
            rows = slice(start, start + BACKWARD_ROWS)
            values = self.loss.value(self._forward(x[rows]), y[rows], weight[rows])
            (values.sum() / len(x)).backward()
            part += values.detach().double().sum()
        if self.config.l2:
            self._add_l2(part, len(x))
        self._optimiser.step()
        return part

    def _forward(self, x: Tensor) -> Tensor:
        h = x
        for W, b, f in zip(self.weights[:-1], self.biases[:-1], self._activations, strict=True):
            h = f(functional.linear(h, W, b))
        return functional.linear(h, self.weights[-1], self.biases[-1])

    def _add_l2(self, part: Tensor, batch: int) -> None:
        """mu/2 |W|² counts once an epoch, so a batch has its share of it."""
        l2, count = self.config.l2, self.problem.num_samples
        for W in self.weights:
            assert W.grad is not None
            W.grad.add_(W.detach(), alpha=l2 / count)
            part += W.detach().double().square().sum() * (l2 / 2 * batch / count)
