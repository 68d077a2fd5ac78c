"""How long until the published accuracy, against full-batch Adam on the same cores?

On each of the paper's data sets, 9 × 500, ours and Adam train in turn until the test accuracy is what the paper's own
method had after 95 epochs; timed are the iterations and the fits of our output layer, not the evaluations.
"""

from __future__ import annotations

from typing import Any

from benchmarks.common import Row, make_parser, parse, report

from pdadmm import Config, Dataset, Observer, load_data, train
from pdadmm.experiments.published import DATA, published

EPOCHS, HIDDEN = 95, (500,) * 9
METHODS: dict[str, dict[str, Any]] = {"pdadmm": {}, "Adam": {"method": "adam"}}
COLUMNS = {
    "data": "",
    "published": ".4f",
    "round": "",
    "pdadmm, epochs": "",
    "Adam, epochs": "",
    "pdadmm, s": ".2f",
    "Adam, s": ".2f",
    "to Adam": ".3f",
}


def run(data: Dataset, goal: float, options: dict[str, Any]) -> tuple[int, float] | None:
    """Epochs and seconds until the goal, or None if it was not reached."""
    common = {"hidden": HIDDEN, "epochs": EPOCHS, "scaling": "global", "stationarity_every": 0}
    observer = Observer(on_note=lambda note: None, is_enough=lambda row: row["test_accuracy"] >= goal)
    history = train(Config.from_mapping({**common, **options}), data, observer).history
    if history[-1]["test_accuracy"] < goal:
        return None
    return history[-1]["epoch"], sum(row["seconds"] for row in history)


def main() -> None:
    parser = make_parser(__doc__, rounds=1)
    parser.add_argument("--data", nargs="+", choices=tuple(DATA), default=list(DATA))
    given = parse(parser)
    rows: list[Row] = []
    for name in given.data:
        data, goal = load_data(name), published("test_accuracy", name, "pdADMM")[EPOCHS]
        for number in range(given.rounds):
            found = {method: run(data, goal, {**given.set, **own}) for method, own in METHODS.items()}
            row: Row = {"data": DATA[name], "published": goal, "round": number + 1}
            for method, reached in found.items():
                if reached:
                    row[f"{method}, epochs"], row[f"{method}, s"] = reached
            ours, adams = found.values()
            if ours and adams:
                row["to Adam"] = ours[1] / adams[1]
            rows.append(row)
    report(given, "race: seconds until the published accuracy of epoch 95", COLUMNS, rows)


if __name__ == "__main__":
    main()
