"""The tables, literally, for given curves and times; parts of data sets; what is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commands import strict_json
from pdadmm.errors import UserError
from pdadmm.experiments import accuracy, convergence
from pdadmm.experiments.accuracy import Curve, curves_by_method, write_curve
from pdadmm.experiments.experiment import SCALES, Settings
from pdadmm.experiments.parts import stratified
from pdadmm.experiments.result import Figure, Result, Series, Table, markdown
from pdadmm.experiments.speedup import (
    LINKS,
    Found,
    Network,
    Speedup,
    at_rest_notes,
    measured_table,
    read_times,
    simulated_table,
    speedup_figure,
)
from pdadmm.history import Row
from pdadmm.plan import Shape
from pdadmm.simulate.blocks import BlockTimes
from pdadmm.simulate.simulation import serial_seconds, simulate


def curve(last: float) -> Curve:
    rows = ((5, 0.5), (95, last))
    return {
        epoch: {"epoch": epoch, "train_accuracy": v + 0.01, "test_accuracy": v, "seconds": 1.0} for epoch, v in rows
    }


def test_the_accuracy_table_and_figure() -> None:
    curves = {"pdadmm": [curve(0.9), curve(0.94)], "adam": [curve(0.95)]}
    table = accuracy.accuracy_table("mnist", "test_accuracy", curves)
    assert [table.columns, *table.rows] == [
        ["MNIST", "seeds", "5", "95"],
        ["pdadmm, defaults", 2, "0.5000 ± 0.0000", "0.9200 ± 0.0200"],
        ["Adam", 1, "0.5000", "0.9500"],
        ["*published: pdADMM*", None, "0.5273", "0.9062"],
        ["*published: GD*", None, "0.1489", "0.1140"],
        ["*published: Adadelta*", None, "0.4109", "0.7583"],
        ["*published: Adagrad*", None, "0.1332", "0.5625"],
        ["*published: Adam*", None, "0.3595", "0.9519"],
        ["*published: dlADMM*", None, "0.1760", "0.8036"],
    ]
    figure = accuracy.accuracy_figure("mnist", "test_accuracy", curves)
    assert (figure.series[0].name, figure.series[0].x) == ("pdadmm, defaults", [5, 95])
    assert figure.series[0].y == pytest.approx([0.5, 0.92])
    assert [curve.name for curve in figure.series[2:]] == [row[0].strip("*") for row in table.rows[2:]]  # type: ignore[union-attr]
    other = accuracy.accuracy_table("cifar100", "train_accuracy", {"adam": [curve(0.9)]}).rows
    assert other[0][2:] == ["0.5100", "0.9100"]
    assert [row[0] for row in other[1:3]] == ["*published: pdADMM*", "*published: GD, ten classes*"]


def test_curves_are_kept_and_read_back(tmp_path: Path) -> None:
    history: list[Row] = [
        {"epoch": 1, "seconds": 0.5},
        {"epoch": 2, "seconds": 0.25, "train_accuracy": 0.9, "test_accuracy": 0.8},
    ]
    for name in ("mnist-adam-0", "mnist-adam-1", "mnist-adam-128-0"):
        write_curve(history, tmp_path / f"{name}.csv")
    assert (tmp_path / "mnist-adam-0.csv").read_text().splitlines() == [
        "epoch,train_accuracy,test_accuracy,seconds",
        "2,0.9,0.8,0.75",
    ]
    found = curves_by_method(tmp_path.iterdir(), "mnist", ("gd", "adam", "adam-128"))
    assert {method: len(curves) for method, curves in found.items()} == {"adam": 2, "adam-128": 1}
    (tmp_path / "mnist-gd-0.csv").write_text("epoch,loss\n1,2\n")
    with pytest.raises(UserError, match=r"mnist-gd-0.csv must be a table of epoch"):
        curves_by_method(tmp_path.iterdir(), "mnist", ("gd",))


def history(objectives: list[float]) -> list[Row]:
    """With c_k halved each epoch."""
    before = [objectives[0] + 1, *objectives]
    return [
        {
            "epoch": number,
            "objective": objective,
            "residual": 1 / number,
            "drop": last - objective,
            "certain_drop": 0.0,
            "certified": objective <= last,
            "c_k": 0.5**number,
        }
        for number, (last, objective) in enumerate(zip(before, objectives, strict=False), start=1)
    ]


def test_a_rise_of_the_objective_is_counted() -> None:
    rose, fell = history([10.0, 9.0, 9.5, 8.0]), history([10.0, 9.0])
    rows = convergence.behaviour_table({("mnist", "theory"): rose, ("kmnist", "theory"): fell}).rows
    assert rows[0] == ["MNIST", "theory", "float64", "10 → 8", "1 of 4", 1, "1 → 0.25", "0.5 → 0.25"]
    assert rows[1][4:6] == ["0 of 2", 0]


def test_the_convergence_table() -> None:
    table = convergence.data_table("mnist", {("mnist", "theory"): history([np.e**2, -1.0, 1.0, 1.0, 1.0])})
    assert table.rows == [
        [1, "10.721", "2.000", "1", "0.5", "0.5"],
        [5, "10.155", "0.000", "0.2", "0.03125", "0.1562"],
    ]
    figures = {figure.y: figure for figure in convergence.figures({("mnist", "theory"): history([np.e**2, -1.0])})}
    assert figures["ln L_rho"].series == [Series("MNIST", [1], [2.0])]
    assert len(figures["ln k·c_k"].series[0].x) == 2


NETWORK = Network("exact", 11, 11, 24, Shape(200, 0, 196, 10))


def test_the_speedup_tables_tell_what_is_measured_from_what_is_simulated() -> None:
    one = Found(NETWORK, 6.0, 1.5, 9.0, 5.0, dict.fromkeys(LINKS, 8.0))
    of_data = {("mnist", "exact"): [one], ("fashion", "exact"): [one]}
    assert one.measured_speedup == 1.8
    (row,) = measured_table(of_data).rows
    assert row == ["11x24, 200 × 196 to 10", "MNIST, Fashion-MNIST", "exact", "6.000", "9.000", "5.000", "1.80"]
    table = simulated_table("layers", "mnist", "exact", [one])
    assert table.rows == [[11, "11x24, 200", 12, "5.38", "9", "8.00", "8.00", "8.00", "8.00"]]
    assert [column for column in table.columns if "Gbit/s" in column] == [
        "simulated, 25 Gbit/s",
        "simulated, 10 Gbit/s",
        "simulated, 1 Gbit/s",
    ]
    how = [series.name.split(",")[0] for series in speedup_figure("layers", "mnist", of_data).series]
    assert how == ["published", *["simulated"] * len(LINKS), "measured"]


def test_times_of_a_busy_machine_are_not_passed_off() -> None:
    calm, busy = (Found(NETWORK, 6.0, factor, 9.0, 5.0, {}) for factor in (1.1, 3.8))
    assert at_rest_notes([calm]) == []
    (note,) = at_rest_notes([calm, busy])
    assert "3.8 to 3.8 times the sum of their layers" in note


def test_layers_that_take_equally_long_add_up_and_scale(tmp_path: Path) -> None:
    equal = {"p": 0.6, "W": 0.1, "z": 0.3, "m": 0.0, "rows": 100}
    (tmp_path / "layers.json").write_text(json.dumps({NETWORK.layers: [equal] * 3}))
    speed = NETWORK.speed(read_times(tmp_path)[NETWORK.layers], factor=2.0)
    assert speed == [BlockTimes(1.2, 0.2, 0.6, 0.0, 100)] * 12
    config = NETWORK.config(12).resolved()
    assert serial_seconds(config, replace(NETWORK.shape, samples=100), speed) == pytest.approx(24.0)
    found = simulate(config, NETWORK.shape, speed, LINKS["no link cost"])
    assert 6 < found.speedup <= 12


def test_layers_are_measured_once_for_both_experiments(tmp_path: Path) -> None:
    layers, neurons = (
        Speedup(Settings(tmp_path, SCALES["tiny"], "", ("mnist", "fashion"), ("exact",)), name)
        for name in ("speedup-layers", "speedup-neurons")
    )
    assert (read_times(tmp_path / "speedup"), layers.cases) == ({}, [])
    layers.prepare(quiet=True)
    (name,) = measured = read_times(tmp_path / "speedup")
    assert name == "exact 200 samples, 196 to 24 to 10, 1 thread"
    assert [times.rows for times in measured[name]] == [200] * 3
    assert all(times.p > 0 for times in measured[name])
    assert [case.path.name[-7:] for case in layers.cases] == ["11x24-1", "11x24-2", "19x24-1", "19x24-2"]
    neurons.prepare(quiet=True)
    again = read_times(tmp_path / "speedup")
    assert (len(again), again[name]) == (10, measured[name])
    (tmp_path / "speedup/layers.json").write_text('{"a": {"b": 1}}')
    with pytest.raises(UserError, match="remove it to measure again"):
        read_times(tmp_path / "speedup")


def test_a_part_of_the_data_keeps_its_classes_in_proportion() -> None:
    y = np.array([0] * 60 + [1] * 30 + [2] * 10)[np.random.default_rng(0).permutation(100)]
    rows = stratified(y, 20)
    assert np.bincount(y[rows]).tolist() == [12, 6, 2]
    assert (np.diff(rows) > 0).all()
    assert rows.tolist() == stratified(y, 20).tolist()
    assert stratified(y, 200).tolist() == list(range(100))


def test_what_is_written(tmp_path: Path) -> None:
    table = Table("T", ["a", "b"], [[1, None], ["x", 0.123456]])
    figure = Figure("F", "epoch", "accuracy", [Series("one", [1, 2], [0.5, 0.75])])
    result = Result("one", "Title", ["note"], [table], [figure])
    result.write(tmp_path / "one")
    assert {path.name for path in (tmp_path / "one").iterdir()} == {"table.md", "result.json"}
    text = (tmp_path / "one/table.md").read_text()
    assert text == markdown(result)
    assert text == "# Title\n\n- note\n\n## T\n\n| a | b |\n|---|---|\n| 1 |  |\n| x | 0.1235 |\n"
    assert strict_json((tmp_path / "one/result.json").read_text()) == {
        "experiment": "one",
        "title": "Title",
        "notes": ["note"],
        "tables": [{"title": "T", "columns": ["a", "b"], "rows": [[1, None], ["x", 0.123456]]}],
        "figures": [
            {"title": "F", "x": "epoch", "y": "accuracy", "series": [{"name": "one", "x": [1, 2], "y": [0.5, 0.75]}]}
        ],
    }
