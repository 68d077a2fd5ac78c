"""`pdadmm.fit`: modules of every kind, trained in place; what cannot be trained is named."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import pdadmm
import pdadmm.modules
from pdadmm.data import Preprocessor
from pdadmm.errors import UserError
from pdadmm.folding import fold, unfold
from pdadmm.history import Row
from pdadmm.modules.layers import is_untouched, read


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(action="ignore"):
        yield


def blobs(samples: int = 240, features: int = 6, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Classes that can be told apart, with features of unequal size and far from 0."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(samples) % classes
    centres = 3 * torch.randn(classes, features, generator=generator)
    X = centres[y] + torch.randn(samples, features, generator=generator)
    return X * torch.logspace(-1, 1, features) + 5, y


def mixed(features: int = 6, outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(12, 9), nn.LeakyReLU(), nn.Dropout(0.3))
    return nn.Sequential(nn.Linear(features, 12), nn.Tanh(), body, nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, outputs))


def accuracy(module: nn.Module, X: Tensor, y: Tensor) -> float:
    module.eval()
    with torch.no_grad():
        return float((module(X).argmax(1) == y).double().mean())


def fitted(module: nn.Module, X: Any, y: Any = None, **options: Any) -> pdadmm.modules.Fitted:
    return pdadmm.fit(module, X, y, **{"epochs": 15, "threads": 1, **options})


@pytest.mark.parametrize(
    ("scaling", "fresh"), [("standard", False), ("global", True), ("minmax", False), ("none", True), ("none", False)]
)
def test_a_mixed_module_learns_in_place(scaling: str, fresh: bool) -> None:
    X, y = blobs()
    module = mixed()
    before = copy.deepcopy(module)
    parameters = list(map(id, module.parameters()))
    result = fitted(module, X, y, validation=(X, y), method={"scaling": scaling}, fresh=fresh)
    assert result.status == "completed"
    assert result.config.activation == "tanh,leaky_relu,relu"
    assert len(result.history) == 15
    assert list(map(id, module.parameters())) == parameters
    assert accuracy(module, X, y) > (0.95 if scaling != "none" else 0.85) > accuracy(before, X, y)
    assert result.history[-1]["train_accuracy"] == pytest.approx(accuracy(module, X, y), abs=2 / len(X))
    assert result.history[-1]["test_accuracy"] == result.history[-1]["train_accuracy"]


def test_training_begins_with_the_weights_of_the_module() -> None:
    """The first iteration hardly moves a module that knows everything already, and one drawn anew is another."""
    X, y = blobs()
    module = mixed().double()
    fitted(module, X.double(), y, epochs=60)
    again = copy.deepcopy(module)
    result = fitted(again, X, y, epochs=1, method={"ridge": 0.0, "damping": 1.0})
    assert result.history[0]["train_accuracy"] == accuracy(module, X.double(), y)
    first, second = (next(iter(m.parameters())).detach() for m in (module, again))
    assert float((first - second).norm() / first.norm()) < 0.3
    drawn = copy.deepcopy(module)
    fitted(drawn, X, y, epochs=1, fresh=True)
    assert float((first - next(iter(drawn.parameters())).detach()).norm() / first.norm()) > 0.7


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", range(2))
def test_a_module_as_pytorch_made_it_is_told_from_a_trained_one(seed: int, dtype: torch.dtype) -> None:
    torch.manual_seed(seed)
    X, y = blobs()
    module = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)).to(dtype)
    assert is_untouched(read(module).linears)
    fitted(module, X, y, epochs=3)
    assert not is_untouched(read(module).linears)
    other = mixed()
    optimiser = torch.optim.Adam(other.parameters(), lr=1e-2)
    for _ in range(20):
        optimiser.zero_grad()
        nn.functional.cross_entropy(other(X), y).backward()
        optimiser.step()
    assert not is_untouched(read(other).linears)


def test_fresh_is_the_default_only_for_a_module_as_pytorch_made_it() -> None:
    X, y = blobs()
    default, drawn = mixed(), mixed()
    with pytest.warns(match="PyTorch's initial weights, so they are drawn anew"):
        first = fitted(default, X, y, epochs=4)
    fitted(drawn, X, y, epochs=4, fresh=True)
    assert all(torch.equal(a, b) for a, b in zip(default.parameters(), drawn.parameters(), strict=True))
    kept = copy.deepcopy(drawn)
    second = fitted(default, X, y, epochs=4)
    assert (first.fresh, second.fresh) == (True, False)
    assert repr(first) == "Fitted(completed after 4 epochs from weights drawn anew)"
    assert repr(second) == "Fitted(completed after 4 epochs from the weights it had)"
    fitted(kept, X, y, epochs=4, fresh=False)
    assert all(torch.equal(a, b) for a, b in zip(default.parameters(), kept.parameters(), strict=True))


def test_deep_modules_as_pytorch_makes_them_learn() -> None:
    X, y = blobs()
    torch.manual_seed(0)
    deep = [part for _ in range(9) for part in (nn.Linear(12, 12), nn.ReLU())]
    module = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), *deep, nn.Linear(12, 3))
    fitted(module, X, y)
    assert accuracy(module, X, y) > 0.95


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_is_kept(dtype: torch.dtype) -> None:
    X, y = blobs()
    module = mixed().to(dtype)
    result = fitted(module, X.to(dtype), y)
    assert {parameter.dtype for parameter in module.parameters()} == {dtype}
    assert result.config.dtype == ("float64" if dtype == torch.float64 else "float32")
    assert accuracy(module, X.to(dtype), y) > 0.9


def test_regression_in_the_units_of_y() -> None:
    X, _ = blobs()
    Y = torch.stack([1000 + 50 * torch.sin(X[:, 0]), X[:, 1] - X[:, 2]], 1)
    module = mixed(outputs=2)
    result = fitted(module, X, Y, epochs=40)
    assert result.config.loss == "squared"
    module.eval()
    error = (module(X).detach() - Y).square().mean(0) / Y.var(0, correction=0)
    assert float(1 - error.mean()) == pytest.approx(result.history[-1]["train_r2"], abs=1e-4)
    assert result.history[-1]["train_r2"] > 0.7
    one = mixed(outputs=1)
    assert fitted(one, X, Y[:, 0], loss="huber").config.loss == "huber"
    with pytest.raises(UserError, match="y must have the 1 outputs of the module"):
        fitted(mixed(outputs=1), X, Y)


def test_folding_the_scaling_in_and_out_changes_no_output() -> None:
    X, y = blobs()
    module = mixed().double().eval()
    network = pdadmm.from_module(module).network
    for preprocessor in (
        Preprocessor.fit(pdadmm.Part(X.numpy(), y.numpy()), "standard", False),
        Preprocessor.fit(pdadmm.Part(X.numpy(), X[:, :3].numpy()), "minmax", True),
    ):
        expected = module(X.double()).detach()
        inside = unfold(network, preprocessor)
        scaled = torch.from_numpy(preprocessor.features(X.numpy(), np.float64))
        found = inside.forward(scaled)
        if preprocessor.regression:
            found = torch.from_numpy(preprocessor.restore(found.numpy()))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        again = fold(inside, preprocessor).forward(X.double())
        torch.testing.assert_close(again, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda X, y: (TensorDataset(X, y), None),
        lambda X, y: (DataLoader(TensorDataset(X, y), batch_size=32), None),
        lambda X, y: (X.numpy(), y.numpy()),
        lambda X, y: (X.tolist(), y.tolist()),
    ],
    ids=["Dataset", "DataLoader", "arrays", "lists"],
)
def test_data_in_every_form_gives_the_same(make: Callable[[Tensor, Tensor], tuple[Any, Any]]) -> None:
    X, y = blobs()
    one, other = mixed(), mixed()
    fitted(one, X, y, epochs=3)
    fitted(other, *make(X, y), epochs=3, validation=make(X, y)[0] if make(X, y)[1] is None else make(X, y))
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_images_go_through_flatten() -> None:
    X, y = blobs()
    module = nn.Sequential(nn.Flatten(), *mixed())
    fitted(module, X.reshape(-1, 2, 3), y)
    assert accuracy(module, X.reshape(-1, 2, 3), y) > 0.95
    with pytest.raises(
        UserError, match=r"X must be 2-D unless the module begins with nn.Flatten; got shape \(240, 2, 3\)"
    ):
        fitted(mixed(), X.reshape(-1, 2, 3), y)


@pytest.mark.parametrize("last", [nn.Softmax(dim=1), nn.LogSoftmax(dim=-1), nn.Identity()])
def test_a_softmax_at_the_end_is_left_there(last: nn.Module) -> None:
    X, y = blobs()
    plain, module = mixed(), nn.Sequential(mixed(), last)
    fitted(plain, X, y, epochs=4)
    fitted(module, X, y, epochs=4)
    plain.eval()
    module.eval()
    assert torch.equal(module(X), last(plain(X)))


def test_a_callback_hears_every_row_and_may_end_it() -> None:
    X, y = blobs()
    rows: list[Row] = []

    def callback(row: Row) -> bool:
        rows.append(row)
        return bool(row["epoch"] == 4)

    result = fitted(mixed(), X, y, callback=callback)
    assert result.status == "interrupted"
    assert [row["epoch"] for row in result.history] == [1, 2, 3, 4]
    assert rows == result.history
    assert fitted(mixed(), X, y, epochs=2, callback=lambda row: None).status == "completed"


def test_an_error_in_a_callback_leaves_the_module_as_it_was() -> None:
    X, y = blobs()
    module = mixed()
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(ZeroDivisionError):
        fitted(module, X, y, callback=lambda row: bool(1 / 0))
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_classes_that_y_does_not_have_are_outputs_all_the_same() -> None:
    X, y = blobs()
    module = mixed(outputs=8)
    fitted(module, X, y + 2)
    assert accuracy(module, X, y + 2) > 0.95


class Own(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return x


def test_an_activation_may_stand_in_the_module_twice() -> None:
    f = nn.Tanh()
    found = read(nn.Sequential(nn.Linear(6, 4), f, nn.Linear(4, 4), f, nn.Linear(4, 3)))
    assert found.activations == ["tanh", "tanh"]


def linears(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 4), *between, nn.Linear(4, 3))


def tied() -> nn.Sequential:
    one = nn.Linear(4, 4)
    return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), one, nn.ReLU(), one, nn.ReLU(), nn.Linear(4, 3))


def frozen() -> nn.Sequential:
    module = linears(nn.ReLU())
    module[2].weight.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(6, 3), "module must be an nn.Sequential; got nn.Linear"),
        (linears(nn.ReLU(), nn.Conv2d(1, 1, 1)), "layer 2 is nn.Conv2d; pdadmm.fit trains Linear, ReLU"),
        (nn.Sequential(linears(nn.GELU())), "layer 0.1 is nn.GELU"),
        (linears(nn.BatchNorm1d(4)), "layer 1 is nn.BatchNorm1d"),
        (linears(nn.LeakyReLU(0.2)), "layer 1 is nn.LeakyReLU with negative_slope 0.2; it must be 0.01"),
        (linears(nn.Hardtanh(0, 6)), "layer 1 is nn.Hardtanh with min_val 0; it must be -1"),
        (linears(nn.ReLU6()), "layer 1 is nn.ReLU6"),
        (linears(nn.ReLU(), nn.Tanh()), "layer 2 is nn.Tanh right behind another activation"),
        (nn.Sequential(nn.ReLU(), *linears()), "layer 0 is nn.ReLU before the first Linear"),
        (nn.Sequential(*linears(), nn.Sigmoid()), "module must end with a Linear .* it ends with sigmoid"),
        (linears(nn.Softmax(dim=1)), "layer 2 is nn.Linear behind nn.Softmax"),
        (nn.Sequential(*linears(), nn.Softmax(dim=0)), "layer 2 is nn.Softmax that is not over the outputs"),
        (nn.Sequential(nn.Linear(6, 3)), "at least two Linear layers; got 1"),
        (nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 3)), "layer 0 is nn.Linear without a bias"),
        (nn.Sequential(nn.Linear(6, 4), nn.Linear(5, 3)), "layer 1 is nn.Linear that must take the 4 outputs"),
        (Own(nn.Linear(6, 4), nn.Linear(4, 3)), "Own has a forward of its own"),
        (linears(nn.Flatten(0)), "layer 1 is nn.Flatten from 0 to -1"),
        (tied(), "layer 4 is nn.Linear that stands in the module twice"),
        (frozen(), "layer 2 is nn.Linear that does not require gradients"),
        (nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3).double()), "one dtype and one device"),
        (nn.Sequential(nn.Linear(7, 4), nn.Linear(4, 3)), "X must have the 7 features that the module takes; got 6"),
        (
            nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2)),
            "class indices from 0 to 1, the module's outputs; got .* to .*2",
        ),
        (nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 1)), "cross_entropy needs a module with an output for each class"),
    ],
    ids=lambda value: value[:45] if isinstance(value, str) else "",
)
def test_what_cannot_be_trained_is_named(module: nn.Module, message: str) -> None:
    X, y = blobs(30)
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(UserError, match=message):
        fitted(module, X, y)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_mistakes_in_the_data_are_named() -> None:
    X, y = blobs(30)
    for data, message in (
        ((X, None), "y must be given"),
        ((TensorDataset(X, y), y), "y must not be given where X is a TensorDataset"),
        ((TensorDataset(X), None), "X must give pairs of inputs and targets"),
        ((X[:0], y[:0]), "sample"),
        ((X, y[:20]), "20"),
        ((X * np.nan, y), "finite"),
        ((3, y), "X must be a tensor or an array; got int"),
        ((X, nn.functional.one_hot(y)), "argmax"),
    ):
        with pytest.raises(UserError, match=message):
            fitted(mixed(), *data)
    with pytest.raises(UserError, match="loss must be one of"):
        fitted(mixed(), X, y, loss="hinge")
    with pytest.raises(UserError, match=r"loss squared does not go with nn.Softmax"):
        fitted(nn.Sequential(mixed(), nn.Softmax(1)), X, y.float(), loss="squared")
    with pytest.raises(UserError, match="device"):
        fitted(mixed().to("meta"), X, y)
    with pytest.raises(
        UserError, match=r"method must have options of the training; got 'prelax' .did you mean p_relax"
    ):
        fitted(mixed(), X, y, method={"prelax": 1.0})
    with pytest.raises(UserError, match="method must be a mapping"):
        fitted(mixed(), X, y, method=["p_relax"])
