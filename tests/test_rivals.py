"""The rivals: they learn, they are what plain PyTorch does, they resume with the same bits, and take runs over."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pdadmm as library
from commands import Outcome, assert_refused, rows_of
from pdadmm import Config, Dataset, Observer, Part
from pdadmm.checkpoint.folder import Folder
from pdadmm.config import LEARNING_RATES, METHODS, OPTIONS_OF
from pdadmm.engine.world import World
from pdadmm.errors import DivergenceError, UserError
from pdadmm.history import KEYS, Row
from pdadmm.math.activations import Activation, PiecewiseLinear, activation_names, get_activation
from pdadmm.math.losses import get_loss
from pdadmm.network import BACKWARD_ROWS, Network
from pdadmm.notation import parse_names
from pdadmm.observer import silent
from pdadmm.plan import Shape, check_room, plan_memory
from pdadmm.prepare import Method, prepare
from pdadmm.rivals import gradient
from pdadmm.rivals.gradient import torch_activation
from pdadmm.run import Place, carry_out, read_config
from pdadmm.storage import storage_of
from resume_cases import assert_same_run, carried_out, content_of, pdadmm, with_copies

RIVALS = METHODS[1:]
SAVES = {"checkpoint_every": 1, "checkpoint_minutes": 0.0, "threads": 1}


def small_data(regression: bool = False, weighted: bool = True) -> Dataset:
    """100 samples of five features to learn from, 30 for testing."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(130, 5)), 0.5 + rng.random(130)
    score = np.tanh(X @ rng.normal(size=(5, 3)))
    y = score[:, :2] if regression else score.argmax(1)
    return Dataset(
        "small", Part(X[:100], y[:100], weight[:100] if weighted else None), Part(X[100:], y[100:]), tuple("abcde")
    )


def begun(config: Config, data: Dataset) -> Method:
    return prepare(config.resolved(), data, silent(), World(), storage_of(config)).session


def quiet(rows: list[Row] | None = None, stop_after: int = 10**9) -> Observer:
    seen: list[Row] = [] if rows is None else rows
    return Observer(on_row=seen.append, on_note=lambda note: None, should_stop=lambda: len(seen) + 1 >= stop_after)


# --- what they compute

LEARNERS: dict[str, dict[str, Any]] = {
    "gd": {"method": "gd", "batch_size": 8, "epochs": 15},
    "adadelta": {"method": "adadelta", "epochs": 60},
    "adagrad": {"method": "adagrad", "epochs": 40},
    "adam": {"method": "adam", "learning_rate": 0.01, "epochs": 40},
    "adam-mini": {"method": "adam", "batch_size": 32, "epochs": 10},
    "dladmm": {"method": "dladmm", "epochs": 60},
}


@pytest.mark.parametrize("case", LEARNERS)
def test_every_rival_learns_digits(case: str) -> None:
    rows: list[Row] = []
    result = library.train(Config(hidden=(20, 20), **LEARNERS[case]), library.load_data("digits"), quiet(rows))
    assert result.history[-1]["test_accuracy"] > 0.85
    assert rows == result.history
    assert all(set(row) <= set(KEYS) and row["method"] == result.config.method and row["layers"] == 2 for row in rows)
    assert rows[-1]["objective"] < rows[0]["objective"]
    assert ("residual" in rows[0]) == (case == "dladmm")


def test_the_published_learning_rates_and_weights_are_the_defaults() -> None:
    found = {method: Config(method=method).resolved() for method in RIVALS}
    assert {method: found[method].learning_rate for method in LEARNING_RATES} == {
        "gd": 0.01,
        "adadelta": 1.0,
        "adagrad": 0.1,
        "adam": 0.001,
    }
    assert (found["dladmm"].nu, found["dladmm"].rho, found["dladmm"].learning_rate) == (1e-6, 1e-6, None)
    assert all(config.grow == "off" and config.resolved() == config for config in found.values())


@pytest.mark.parametrize("init", ["he", "paper"])
def test_all_methods_begin_with_the_same_weights(init: str) -> None:
    given = {"hidden": "9,7", "grow": "off", "init": init, "seed": 3}
    networks = [
        begun(Config.from_mapping({**given, "method": method, **unfitted}), small_data()).network()
        for method, unfitted in ((name, {"fit_output": "off"} if name == "pdadmm" else {}) for name in METHODS)
    ]
    for network in networks[1:]:
        for mine, other in zip(network.weights + network.biases, networks[0].weights + networks[0].biases, strict=True):
            assert torch.equal(mine, other)


def plain_network(network: Network) -> nn.Sequential:
    """The same weights in modules of PyTorch."""
    modules: list[nn.Module] = []
    for W, b in zip(network.weights, network.biases, strict=True):
        layer = nn.Linear(W.shape[1], len(b), dtype=W.dtype)
        layer.weight.data, layer.bias.data = W.clone(), b.clone()
        modules += [layer, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


@pytest.mark.parametrize(("dtype", "within"), [("float32", 1e-6), ("float64", 1e-14)])
@pytest.mark.parametrize("method", LEARNING_RATES)
def test_full_batches_are_what_a_plain_loop_does(method: str, dtype: str, within: float) -> None:
    session = begun(Config(method=method, hidden=(16, 16), dtype=dtype), small_data(weighted=False))
    assert isinstance(session, gradient.GradientDescent)
    plain = plain_network(session.network())
    makers = {"gd": "SGD", "adadelta": "Adadelta", "adagrad": "Adagrad", "adam": "Adam"}
    optimiser = getattr(torch.optim, makers[method])(plain.parameters(), lr=LEARNING_RATES[method])
    for epoch in range(1, 11):
        row = session.iterate(epoch)
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(plain(session.x), session.y)
        loss.backward()
        optimiser.step()
        assert row["objective"] == pytest.approx(float(loss.detach()) * 100, rel=1e-6)
    assert isinstance(plain[0], nn.Linear)
    for W, parameter in zip(session.network().weights, list(plain.parameters())[::2], strict=True):
        torch.testing.assert_close(W, parameter.detach(), rtol=0, atol=within * 10)


SQUARES = {"loss": "squared"}
GRADIENT_CASES: list[dict[str, Any]] = [
    *({"activation": name} for name in activation_names()),
    {"activation": "tanh,leaky_relu"},
    SQUARES,
    {"loss": "huber", "huber_delta": 0.3},
    {"class_weight": "balanced", "l2": 0.7},
    {**SQUARES, "l2": 3.0},
]


@pytest.mark.parametrize("options", GRADIENT_CASES, ids=str)
def test_a_step_goes_down_the_gradient_of_the_objective(options: dict[str, Any]) -> None:
    config = Config(method="gd", learning_rate=0.5, hidden=(6, 6), dtype="float64", **options)
    session = begun(config, small_data(regression=config.loss != "cross_entropy"))
    assert isinstance(session, gradient.GradientDescent)
    f = {"leaky_relu": nn.functional.leaky_relu, "identity": lambda z: z}
    f |= {"relu": torch.relu, "hardtanh": nn.functional.hardtanh, "tanh": torch.tanh, "sigmoid": torch.sigmoid}
    weights, biases = ([v.clone().requires_grad_() for v in vs] for vs in (session.weights, session.biases))
    h = session.x
    for W, b, name in zip(weights[:-1], biases[:-1], parse_names(config.activation, 2), strict=True):
        h = f[name](h @ W.t() + b)
    z = h @ weights[-1].t() + biases[-1]
    objective = get_loss(config).value(z, session.y, session.sample_weight).sum()
    objective = objective + config.l2 / 2 * sum(W.square().sum() for W in weights)
    expected = torch.autograd.grad(objective / 100, [*weights, *biases])
    before = [v.detach().clone() for v in (*session.weights, *session.biases)]
    assert session.iterate(1)["objective"] == pytest.approx(float(objective.detach()), rel=1e-12)
    for old, new, slope in zip(before, [*session.weights, *session.biases], expected, strict=True):
        torch.testing.assert_close(old - new.detach(), 0.5 * slope, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", activation_names())
def test_activations_that_pytorch_does_not_have_go_by_their_slopes(name: str) -> None:
    known = get_activation(name)
    kind: type[Activation] = type("Other", (type(known),), {"name": "other"})
    z = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    for activation in (known, kind()):
        leaf = z.clone().requires_grad_()
        value = torch_activation(activation)(leaf * 1)
        value.sum().backward()
        torch.testing.assert_close(value.detach(), known.forward(z, torch.empty_like(z)))
        assert leaf.grad is not None
        torch.testing.assert_close(leaf.grad, known.slopes(z)[0])
    assert isinstance(known, PiecewiseLinear) or name in ("tanh", "sigmoid")


def test_a_backward_pass_in_parts_is_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    config, networks = Config(method="adam", hidden=(8, 8), epochs=5, dtype="float64"), []
    for rows in (100, 37):
        monkeypatch.setattr(gradient, "BACKWARD_ROWS", rows)
        networks.append(library.train(config, small_data(), quiet()).model.network)
    for whole, parts in zip(networks[0].weights, networks[1].weights, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-9, atol=1e-12)


def test_every_sample_is_in_one_mini_batch_of_an_epoch() -> None:
    config = Config(method="gd", learning_rate=1e-30, batch_size=32, hidden=(8,), dtype="float64", l2=0.5)
    session = begun(config, small_data())
    whole = begun(dataclasses.replace(config, batch_size=None), small_data())
    assert isinstance(session, gradient.GradientDescent)
    orders = []
    for epoch in (1, 2):
        batches = list(session._batches(epoch))
        assert [len(x) for x, _, _ in batches] == [32, 32, 32, 4]
        orders.append(torch.cat([x for x, _, _ in batches]))
        assert session.iterate(epoch)["objective"] == pytest.approx(whole.iterate(epoch)["objective"], rel=1e-9)
    assert not torch.equal(*orders)
    assert all(sorted(order[:, 0].tolist()) == sorted(session.x[:, 0].tolist()) for order in orders)
    others = begun(dataclasses.replace(config, seed=1), small_data())
    assert isinstance(others, gradient.GradientDescent)
    assert not torch.equal(orders[0], torch.cat([x for x, _, _ in others._batches(1)]))


def test_numbers_that_diverge_end_the_run_with_advice() -> None:
    with pytest.raises(DivergenceError, match=r"in epoch \d+; lower --learning-rate"):
        library.train(Config(method="gd", learning_rate=1e30, hidden=(8, 8)), small_data(), quiet())


def test_a_rival_stops_on_request() -> None:
    result = library.train(Config(method="adam", hidden=(8,), epochs=50), small_data(), quiet(stop_after=4))
    assert (result.status, len(result.history)) == ("interrupted", 4)
    assert "test_accuracy" in result.history[-1]


# --- what does not go with them

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"method": "adam", "workers": 2}, "runs in one process"),
    ({"method": "dladmm", "shards": 2}, "runs in one process"),
    ({"method": "adam", "grow": "auto"}, "grow is an option of method pdadmm"),
    ({"method": "adam", "storage": "disk"}, "storage is an option of method pdadmm"),
    ({"method": "dladmm", "batches": 2}, "batches is an option of method pdadmm"),
    ({"method": "gd", "messages": "bfloat16"}, "messages is an option of method pdadmm"),
    ({"method": "gd", "nu": 0.1}, "nu is an option of method pdadmm, dladmm"),
    ({"method": "dladmm", "learning_rate": 0.1}, "learning_rate is an option of method gd, adadelta, adagrad, adam"),
    ({"batch_size": 10}, "batch_size is an option of method gd"),
    ({"method": "adam", "batch_size": 0}, "batch_size must be at least 1"),
    ({"method": "adam", "learning_rate": 0.0}, "learning_rate must be above 0"),
    ({"method": "lbfgs"}, "method must be one of pdadmm, gd"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: str(value))
def test_options_of_another_method_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Config(**options)


def test_options_of_some_methods_are_options() -> None:
    assert set(OPTIONS_OF) < {field.name for field in dataclasses.fields(Config)}


def test_the_plan_knows_what_a_rival_takes() -> None:
    shape = Shape(20_000, 0, 64, 10)
    memory = {m: plan_memory(Config(method=m, hidden=(100,) * 9).resolved(), shape) for m in METHODS}
    assert memory["adam"].auxiliaries == 0
    assert memory["adam"].work > 4 * BACKWARD_ROWS * 900
    assert memory["dladmm"].auxiliaries == 4 * 20_000 * (3 * 910 + 100)
    huge, config = Shape(10**10, 0, 64, 10), Config(method="dladmm").resolved()
    with pytest.raises(UserError, match=r"more memory .* or float32$"):
        check_room(config, plan_memory(config, huge), storage_of(config))
    small = plan_memory(Config(method="adam", hidden=(100,) * 9, batch_size=64).resolved(), shape)
    assert small.work < memory["adam"].work / 2


# --- saved and resumed

RESUMED: dict[str, dict[str, Any]] = {
    **{method: {"method": method} for method in RIVALS},
    **{f"{method}-mini": {"method": method, "batch_size": 16} for method in LEARNING_RATES},
    "adam-float64": {"method": "adam", "dtype": "float64", "l2": 0.1},
    "adam-squared": {"method": "adam", "loss": "squared", "batch_size": 30},
    "dladmm-float64-tanh": {"method": "dladmm", "dtype": "float64", "activation": "tanh", "nu": 0.1, "rho": 1.0},
    "dladmm-huber": {"method": "dladmm", "loss": "huber"},
}


@pytest.mark.parametrize("case", RESUMED)
def test_a_run_that_died_goes_on_as_if_it_had_not(case: str, tmp_path: Path) -> None:
    config = Config(hidden=(8, 6), epochs=7, **RESUMED[case], **SAVES)  # type: ignore[arg-type]
    data = small_data(regression=config.loss != "cross_entropy")
    reference, copies = with_copies(config, data, tmp_path / "run", {5})
    done = carried_out(config, data, copies[5], resumes=True)
    assert done.summary["resumed_from"] == 3
    assert_same_run(done.path, reference.path)


def test_the_options_of_a_rival_are_kept_on_resume(tmp_path: Path) -> None:
    config = Config(method="adam", hidden=(8, 6), epochs=3, **SAVES)  # type: ignore[arg-type]
    carried_out(config, small_data(), tmp_path / "run")
    for change, shown in (({"learning_rate": 0.5}, "was 0.001 and is now 0.5"), ({"batch_size": 9}, "was not set")):
        other = dataclasses.replace(config, epochs=5, **change)
        with pytest.raises(UserError, match=shown):
            carried_out(other, small_data(), tmp_path / "run", resumes=True)
    done = carried_out(other, small_data(), tmp_path / "run", resumes=True, allow_changes=True)
    assert done.notes[0] == "batch_size was not set and is now 9"
    assert [row["epoch"] for row in rows_of(done.path)] == [1, 2, 3, 4, 5]


# --- hand-over

CHAINS = [("pdadmm", "adam"), ("adam", "pdadmm"), ("adam", "dladmm"), ("dladmm", "gd"), ("gd", "adagrad")]


@pytest.mark.parametrize(("first", "second"), CHAINS)
def test_a_method_takes_over_a_run(first: str, second: str, tmp_path: Path) -> None:
    """Weights and rows are kept, and what follows can be resumed with the same bits."""
    config, data = Config(method=first, hidden=(8, 8, 8), epochs=4, **SAVES), small_data()  # type: ignore[arg-type]
    carried_out(config, data, tmp_path / "run")
    rows, model = rows_of(tmp_path / "run"), library.load_model(tmp_path / "run")
    before = content_of(tmp_path / "run")
    later = dataclasses.replace(read_config(tmp_path / "run").handed_over(second), epochs=9)
    with pytest.raises(UserError, match=f"method was {first} and is now {second}"):
        carried_out(later, data, tmp_path / "run", resumes=True)
    none_left = dataclasses.replace(later, epochs=4)
    with pytest.raises(UserError, match=f"none is left for {second}"):
        carried_out(none_left, data, tmp_path / "run", resumes=True, allow_changes=True)
    assert content_of(tmp_path / "run") == before
    done = carried_out(later, data, tmp_path / "run", resumes=True, allow_changes=True)
    (note,) = [note for note in done.notes if "takes over" in note]
    assert note.startswith(f"{second} takes over from {first} after epoch 4; weights and history are kept; ")
    found = rows_of(done.path)
    assert found[:4] == rows
    assert [row["epoch"] for row in found] == list(range(1, 10))
    assert [row.get("handed_over_from") for row in found] == [None] * 4 + [first] + [None] * 4
    assert [row.get("method", "pdadmm") for row in found] == [first] * 4 + [second] * 5
    assert all(row["layers"] == 3 for row in found[4:])
    assert done.summary["method"] == read_config(done.path).method == second
    # What a run of the second method alone makes of the first one's model is the same.
    alone = dataclasses.replace(later, epochs=5, init_from=str(tmp_path / "model"), grow=None)
    (tmp_path / "model").mkdir()
    model.save(tmp_path / "model" / "model.safetensors")
    if second in LEARNING_RATES:
        fresh = carried_out(alone, data, tmp_path / "alone")
        assert rows_of(fresh.path)[0]["objective"] == found[4]["objective"]
    # The checkpoints after it are the second method's own.
    last = Folder(done.path).directory(9)
    for name in sorted(path.name for path in last.iterdir()):
        (last / name).unlink()
    last.rmdir()
    kept = {name: content_of(done.path)[name] for name in ("history.jsonl", "model.safetensors")}
    again = carried_out(later, data, done.path, resumes=True)
    assert again.summary["resumed_from"] == 8
    assert (done.path / "model.safetensors").read_bytes() == kept["model.safetensors"]


def test_a_growing_network_is_handed_over_whole(tmp_path: Path) -> None:
    """With identity layers where some had not joined yet, so that it is the same function."""
    config = Config(hidden=(8, 8, 8), epochs=8, grow="0:1,6:all", evaluate_every=1, **SAVES)  # type: ignore[arg-type]
    data = small_data()
    _, copies = with_copies(config, data, tmp_path / "run", {5})
    rows = rows_of(copies[5])
    assert rows[2]["layers"] == 1
    later = dataclasses.replace(config.resolved().handed_over("gd"), learning_rate=1e-30)
    done = carried_out(later, data, copies[5], resumes=True, allow_changes=True)
    found = rows_of(done.path)
    assert [row["layers"] for row in found] == [1] * 3 + [3] * 5
    assert found[3]["handed_over_from"] == "pdadmm"
    assert found[3]["train_accuracy"] == rows[2]["train_accuracy"]
    torch.testing.assert_close(library.load_model(done.path).network.weights[1], torch.eye(8), rtol=0, atol=1e-20)


def flags(*given: str | Path) -> Outcome:
    return pdadmm("train", *given, "--threads", "1")


def test_the_command_line_hands_over_and_knows_the_run(tmp_path: Path) -> None:
    """Options of the method before are dropped, those of the new one are flags; every other command goes on."""
    run = tmp_path / "run"
    begin = ("--hidden", "3x8", "--nu", "0.05", "--solver", "linearized", "--grow", "0:1,2:all")
    assert flags(*begin, "--epochs", "4", "--out", run, "--quiet").code == 0
    onward = ("--resume", run, "--method", "adam", "--learning-rate", "0.01", "--epochs", "7")
    assert_refused(flags(*onward), "method was pdadmm and is now adam", "--allow-changes")
    assert_refused(flags(*onward, "--nu", "0.1", "--allow-changes"), "nu is an option of method pdadmm, dladmm")
    found = flags(*onward, "--allow-changes", "--json")
    assert found.json()["method"] == "adam"
    assert "note: adam takes over from pdadmm after epoch 4" in found.err
    config = read_config(run)
    assert (config.method, config.learning_rate, config.nu, config.solver) == ("adam", 0.01, None, "exact")
    assert pdadmm("evaluate", run, "--json").code == 0
    report = pdadmm("inspect", run, "--json").json()
    assert (report["method"], report["valid"], report["epoch"]) == ("adam", True, 7)
    back = flags("--resume", run, "--method", "pdadmm", "--epochs", "9", "--allow-changes", "--quiet")
    assert back.code == 0, back.err
    assert [row.get("handed_over_from") for row in rows_of(run)] == [None] * 4 + ["pdadmm", None, None, "adam", None]
    assert rows_of(run)[-1]["layers"] == 3
    assert pdadmm("inspect", run).code == 0


def test_a_run_that_died_after_a_hand_over_says_how_to_go_on(tmp_path: Path) -> None:
    """The options are the new method's, and the only checkpoint the old one's."""
    config = Config(hidden=(8, 8), epochs=3, **SAVES)  # type: ignore[arg-type]
    carried_out(config, small_data(), tmp_path / "run")

    def die(row: Row) -> None:
        raise ZeroDivisionError

    later = dataclasses.replace(config.resolved().handed_over("adam"), epochs=6)
    with pytest.raises(ZeroDivisionError):
        carried_out(later, small_data(), tmp_path / "run", resumes=True, allow_changes=True, on_row=die)
    report = pdadmm("inspect", tmp_path / "run", "--json").json()
    assert report["problems"] == []
    assert report["command"].endswith("--allow-changes")
    assert "method was pdadmm and is now adam" in report["advice"]
    done = carried_out(later, small_data(), tmp_path / "run", resumes=True, allow_changes=True)
    assert rows_of(done.path)[3]["handed_over_from"] == "pdadmm"


def test_a_plot_of_a_run_that_was_handed_over(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    from pdadmm.charts import plot_run

    data = small_data()
    rows = library.train(Config(method="adam", hidden=(8,), epochs=2), data, quiet()).history
    plot_run(rows, tmp_path / "plot.png")
    more = library.train(Config(hidden=(8,), epochs=1), data, quiet()).history
    plot_run([*rows, {**more[0], "epoch": 3, "handed_over_from": "adam"}], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_a_chart_that_cannot_be_drawn_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    altair = pytest.importorskip("altair")

    def fail(*_: object, **__: object) -> None:
        raise ValueError("too wide")

    monkeypatch.setattr(altair.TopLevelMixin, "save", fail)
    notes: list[str] = []
    carry_out(World(), Config(hidden=(8,), epochs=1), small_data, Place(tmp_path), Observer(on_note=notes.append))
    assert "no plot.png: it could not be drawn: too wide" in notes
    assert (tmp_path / "summary.json").exists()
