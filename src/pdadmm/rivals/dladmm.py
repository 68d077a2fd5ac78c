"""dlADMM: Wang, Yu, Chen and Zhao, "ADMM for efficient deep learning with global convergence", KDD 2019.

One multiplier, for the output layer alone; every other equation of the network is a penalty. With q_l the output of
layer l (the a_l of that paper), a_l = q_{l-1} W_lᵀ + b_l and q_0 = x, in the letters that this project uses throughout:

    L_rho = R(z_L; y) + mu/2 Σ_l |W_l|² + nu/2 Σ_{l<L} (|z_l - a_l|² + |q_l - f(z_l)|²)
            + <u, z_L - a_L> + rho/2 |z_L - a_L|²

An iteration visits every layer twice, one after the other, each step with the newest values of all others:

    backward    l = L … 1      q_l   z_l   b_l   W_l          (no q_L)
    forward     l = 1 … L      W_l   b_l   z_l   q_l
    then        u += rho (z_L - a_L)

W and q take a gradient step whose length is the least that the quadratic bound allows, known in closed form because the
subproblem is quadratic (docs/method.md): one a neuron for W, one a sample for q. The paper searches for one a layer by
doubling; at its start of 1, far above what nu = 1e-6 needs, its steps are much shorter. b is the mean residual and z
the global minimiser, without a proximal term; z_L is the prox of the risk, shifted by u.

a is carried along, so that a sweep costs four products a layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pdadmm.checkpoint.restore import SavedRun
from pdadmm.history import Row
from pdadmm.math.subproblems import linear, tau_minimum, theta_minimum
from pdadmm.math.tiles import (
    SUM_ROWS,
    Chunk,
    Tiling,
    TreeSum,
    Workspace,
    default_tile_rows,
    row_norms,
    sum_of_rows,
    within,
)
from pdadmm.rivals.rival import Rival

_FIT, _GAP, _RISK, _COUPLING = range(4)


class DlAdmm(Rival):
    """All layers of one process, visited backward and forward."""

    begins_anew = "z and the layers' outputs come from a forward pass, and the multiplier is 0"
    divergence_advice = "scale the features (--scaling standard), change --nu and --rho, or use --dtype float64"

    def build(self, drawn: bool) -> None:
        """A forward pass; z_L knows the targets where the weights know nothing."""
        config, problem = self.config, self.problem
        assert config.nu is not None
        assert config.rho is not None
        self._nu, self._rho = config.nu, config.rho
        self._output = len(config.hidden)
        self._terms = [self._nu] * self._output + [self._rho]  # the weight of each layer's equation
        widths = (problem.num_features, *config.hidden, problem.num_outputs)
        tiling = Tiling(problem.num_samples, default_tile_rows(max(widths)), width=max(config.hidden))
        self._ws = Workspace(tiling, max(widths), 0, problem.dtype, problem.device)
        self._scratch = self._array(max(widths[1:])).view(-1)
        self._z, self._a = ([self._array(len(b)) for b in self.biases] for _ in range(2))
        self._q = [self.x, *(self._array(width) for width in config.hidden)]  # q[l] is what layer l takes in
        for index, (W, b, z, a) in enumerate(zip(self.weights, self.biases, self._z, self._a, strict=True)):
            for rows in tiling.tiles():
                z[rows] = linear(self._q[index][rows], W, b, a[rows])
                if index != self._output:
                    self.activations[index].forward(z[rows], self._q[index + 1][rows])
                elif drawn:
                    z[rows] = self.loss.initial(a[rows], self.y[rows])
        self._u = self._array(len(self.biases[-1])).zero_()

    def restore(self, saved: SavedRun) -> None:
        """The arrays as they were."""
        for layer in range(len(self.weights)):
            arrays = self._arrays(layer)
            found = saved.layer(layer, {name: v.shape for name, v in arrays.items()}, self.problem.storage)
            for name, array in arrays.items():
                array.copy_(found[name])

    def layer_state(self, layer: int) -> dict[str, Tensor]:
        """W and b are replaced by every step, so they are not copied."""
        return {"W": self.weights[layer], "b": self.biases[layer], **self._arrays(layer)}

    def _arrays(self, layer: int) -> dict[str, Tensor]:
        last = {"u": self._u} if layer == self._output else {"q": self._q[layer + 1]}
        return {"z": self._z[layer], "a": self._a[layer], **last}

    def _array(self, width: int) -> Tensor:
        return torch.empty(self.problem.num_samples, width, dtype=self.problem.dtype, device=self.problem.device)

    # --- an iteration

    def run_epoch(self, epoch: int) -> Row:
        """Backward, forward, u; L_rho and the residual after it."""
        depth = len(self.weights)
        for index in reversed(range(depth)):
            self._visit_backward(index)
        measured = torch.zeros(4, dtype=torch.float64)
        penalties = 0.0
        for index in range(depth):
            measured = self._visit_forward(index)
            if index != self._output:
                penalties += float(measured[_FIT] + measured[_GAP])
        residual = float(measured[_FIT])
        squares = sum(float(W.double().square().sum()) for W in self.weights) if self.config.l2 else 0.0
        objective = float(measured[_RISK]) + self.config.l2 / 2 * squares + self._nu / 2 * penalties
        objective += float(measured[_COUPLING]) + self._rho / 2 * residual
        return {"objective": objective, "residual": residual**0.5}

    def _visit_backward(self, index: int) -> None:
        for chunk in self._chunks(index):
            for rows in chunk.tiles:
                if index != self._output:
                    self._q_step(index, rows)
                self._z_step(index, rows)
            self._add_sums(index, chunk)
        self._weight_step(index, bias_first=True)

    def _visit_forward(self, index: int) -> Tensor:
        for chunk in self._chunks(index):
            self._add_sums(index, chunk)
        self._weight_step(index, bias_first=False)
        total = self._ws.sum("measured", 4, dtype=torch.float64)
        for chunk in self._chunks(index):
            values = self._ws.row_values(4, chunk.rows.stop - chunk.rows.start)
            for rows in chunk.tiles:
                self._z_step(index, rows)
                if index == self._output:
                    self._u[rows].add_(self._z[-1][rows], alpha=self._rho).sub_(self._a[-1][rows], alpha=self._rho)
                else:
                    self._q_step(index, rows)
                self._measure(index, rows, values[:, within(rows, chunk)])
            total.add(torch.cat([sum_of_rows(values[:2], squared=True), sum_of_rows(values[2:])]))
            total.close_chunk()
        return total.take().clone()

    def _chunks(self, index: int) -> list[Chunk]:
        """The prox of the risk stops tile by tile, so its bits must not depend on this machine's tiles."""
        return list(self._ws.chunks(SUM_ROWS if index == self._output else None))

    # --- the steps, on a tile

    def _residual(self, index: int, rows: slice) -> Tensor:
        """r = z_l - a_l, at the output + u/rho: the term of the layer is its weight times |r|²/2."""
        z, a = self._z[index][rows], self._a[index][rows]
        r = torch.sub(z, a, out=self._ws.tile(0, *z.shape))
        return r.add_(self._u[rows], alpha=1 / self._rho) if index == self._output else r

    def _q_step(self, index: int, rows: slice) -> None:
        """q -= g/tau with g = q - f(z) - kappa r W of the layer after, all divided by nu; a after it moves along."""
        z, q, W = self._z[index][rows], self._q[index + 1][rows], self.weights[index + 1]
        kappa = self._terms[index + 1] / self._nu
        r = self._residual(index + 1, rows)
        f = self.activations[index].forward(z, self._ws.tile(1, *z.shape))
        g = torch.sub(q, f, out=f).addmm_(r, W, alpha=-kappa)
        gW = torch.mm(g, W.t(), out=r)
        step = -1 / tau_minimum(_row_squares(g), _row_squares(gW), kappa, 1.0)
        q.addcmul_(g, step)
        self._a[index + 1][rows].addcmul_(gW, step)

    def _z_step(self, index: int, rows: slice) -> None:
        """z = argmin (z - a)² + (q - f(z))², or the prox of the risk at a - u/rho."""
        z, a = self._z[index][rows], self._a[index][rows]
        if index != self._output:
            out = self._ws.tile(0, *z.shape)
            z.copy_(self.activations[index].z_step(a, self._q[index + 1][rows], z, 0.0, out))
            return
        centre = torch.sub(a, self._u[rows], alpha=1 / self._rho)
        z.copy_(self.loss.prox(centre, self.y[rows], self.sample_weight[rows], z, self._rho)[0])

    def _measure(self, index: int, rows: slice, values: Tensor) -> None:
        z, a = self._z[index][rows], self._a[index][rows]
        difference = torch.sub(z, a, out=self._ws.tile(0, *z.shape))
        row_norms(difference, values[_FIT])
        if index == self._output:
            values[_RISK] = self.loss.value(z, self.y[rows], self.sample_weight[rows])
            torch.sum(difference.mul_(self._u[rows]), 1, out=values[_COUPLING])
            return
        f = self.activations[index].forward(z, difference)
        row_norms(f.sub_(self._q[index + 1][rows]), values[_GAP])

    # --- W and b, from sums over all samples

    def _scratch_for(self, index: int) -> Tensor:
        """As many numbers as a has, each call the same memory."""
        width = len(self.biases[index])
        return self._scratch[: self.problem.num_samples * width].view(-1, width)

    def _add_sums(self, index: int, chunk: Chunk) -> None:
        """rᵀq, Σr and Σq of a chunk."""
        q, residuals = self._q[index], self._scratch_for(index)
        for rows in chunk.tiles:
            residuals[rows] = self._residual(index, rows)
        r = residuals[chunk.rows]
        cross, r_sum, q_sum = self._sums(index)
        cross.add_product(r, q[chunk.rows])
        r_sum.add(r.sum(0))
        q_sum.add(q[chunk.rows].sum(0))
        for one in (cross, r_sum, q_sum):
            one.close_chunk()

    def _sums(self, index: int) -> tuple[TreeSum, TreeSum, TreeSum]:
        n_out, n_in = self.weights[index].shape
        return self._ws.sum("cross", n_out, n_in), self._ws.sum("r", n_out), self._ws.sum("q", n_in)

    def _weight_step(self, index: int, bias_first: bool) -> None:
        """W -= G/theta with G = -rᵀq + mu/k W, all divided by the layer's weight k, b += mean(r), and a moves along.

        Whichever is second sees what the first has changed in r.
        """
        W, count, kept = self.weights[index], self.problem.num_samples, self.config.l2 / self._terms[index]
        cross, r_sum, q_sum = (one.take() for one in self._sums(index))
        r_mean, q_mean = r_sum / count, q_sum / count
        if bias_first:
            cross.addr_(r_mean, q_mean, alpha=-count)
        G = cross.neg_().add_(W, alpha=kept)
        q, products, squares = self._q[index], self._scratch_for(index), self._ws.sum("squares", len(G))
        for chunk in self._ws.chunks(SUM_ROWS):
            torch.mm(q[chunk.rows], G.t(), out=products[chunk.rows])
            for rows in chunk.tiles:
                squares.add(torch.square(products[rows], out=self._ws.tile(1, *products[rows].shape)).sum(0))
            squares.close_chunk()
        theta = theta_minimum(G.square().sum(1), squares.take(), 1.0, kept)
        shift = r_mean if bias_first else r_mean + (G @ q_mean) / theta
        self.weights[index] = W - G / theta[:, None]
        self.biases[index] = self.biases[index] + shift
        for rows in self._ws.tiling.tiles():
            self._a[index][rows].addcmul_(products[rows], -1 / theta).add_(shift)


def _row_squares(rows: Tensor) -> Tensor:
    """|row|² of each row, as a column."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return norms.square_()
