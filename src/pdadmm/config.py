"""Every option of a run, in one frozen, checked and self-describing place.

`Config` is the only source of option names: the command line makes its flags from it, `config.toml` has its keys,
and the library takes it as it is. An option left at None means "choose well for the solver"; `Config.resolved`
makes that choice, so that what a run writes down is complete and can be run again.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from pdadmm.errors import UserError, did_you_mean
from pdadmm.notation import format_hidden, format_names, parse_hidden, parse_names

SOLVERS = ("exact", "linearized", "backtracking")
LEARNING_RATES = {"gd": 0.01, "adadelta": 1.0, "adagrad": 0.1, "adam": 0.001}
"""The gradient methods, with the learning rates of the paper's section V."""
METHODS = ("pdadmm", *LEARNING_RATES, "dladmm")
RETIRED: dict[str, tuple[Any, str]] = {
    "products": ("standard", "other arithmetic for the large products spoiled the training or changed little"),
    "compile": ("off", "compiled kernels saved 5 % of an epoch"),
    "tile_rows": (None, "tiles are as large as the width and this machine's cache suggest"),
}
"""Options of earlier versions: what they were by default, and why they are gone."""
RETIRED_VALUES = {("messages", "int8"): "bfloat16 gains as much on a slow link and is nearer to exact"}
"""Values of earlier versions, and why they are gone."""
MANY_SAMPLES = 25_000  # from here on the ridge of exact has less to guard against; docs/tuning.md has the figures
LARGEST_WEIGHT = 3e38  # of a float32
LARGEST_COUNT = 10**12
LARGEST_SEED = 2**63 - 1
MOST_PROCESSES = 10_000  # of workers, and of shards
MOST_THREADS = 1024  # a pool of many more brings the process down

FIRST, MORE, NONE = "first", "more", "none"
"""Where an option has a flag: on the first screen of help, behind `--help-all`, or nowhere (`--set` reaches it)."""
_ADMM, _BOTH_ADMM, _GRADIENT = ("pdadmm",), ("pdadmm", "dladmm"), tuple(LEARNING_RATES)


def _option(
    group: str,
    default: Any,
    help: str,
    *,
    flag: str = NONE,
    choices: tuple[str, ...] = (),
    methods: tuple[str, ...] = METHODS,
    on_resume: str = "kept",
    **bounds: float,
) -> Any:
    """A field that carries its own help, bounds and flag, and what a resumed run may do with it.

    `methods`: the methods that have it. `bounds`: `above`, `at_least`, `below`, `at_most`.
    `on_resume`, `free`: change it, the trajectory stays the same. `kept`: it shapes the trajectory, so a change must
    be allowed. `fixed`: what is saved would not fit. `hand-over`: if it is allowed, another method goes on with the
    weights alone.
    """
    about = {"group": group, "help": help, "flag": flag, "choices": choices, "methods": methods}
    return dataclasses.field(default=default, metadata=about | {"on_resume": on_resume, "bounds": bounds})


_data, _network, _training, _method, _machine, _run = (
    partial(_option, group) for group in ("data", "network", "training", "method", "machine", "run")
)
_admm, _both, _gradient = (partial(_method, methods=methods) for methods in (_ADMM, _BOTH_ADMM, _GRADIENT))
_COUNT: dict[str, Any] = {"at_least": 1, "at_most": LARGEST_COUNT}
_EVERY: dict[str, Any] = {"at_least": 0, "at_most": LARGEST_COUNT}  # 0 is never
_SEED: dict[str, Any] = {"at_least": 0, "at_most": LARGEST_SEED}
_PROCESSES: dict[str, Any] = {"at_least": 1, "at_most": MOST_PROCESSES}
_WEIGHT: dict[str, Any] = {"above": 0, "at_most": LARGEST_WEIGHT}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The options of one training run."""

    # Files may move; that the data is the same is found out by its fingerprint.
    data: str = _data("digits", "a data set's name, or a .npz, .csv or .parquet file", flag=FIRST, on_resume="free")
    target: str | None = _data(None, "the column of a table to predict (default: the last)", flag=FIRST)
    weight: str | None = _data(None, "a column with the weight of each sample", flag=MORE)
    test_fraction: float = _data(
        0.2,
        "share of the samples held out for testing, unless the data brings a test part; 0 for none",
        flag=FIRST,
        at_least=0,
        below=1,
    )
    split_seed: int = _data(0, "seed by which the samples held out are chosen", at_least=0, at_most=2**32 - 1)
    scaling: str | None = _data(
        None,
        "how features are scaled: each to mean 0 and spread 1 (standard), all with one spread as images need (global), "
        "or to [0, 1] (minmax); default standard for files, global for named data sets",
        flag=FIRST,
        choices=("standard", "global", "minmax", "none"),
    )
    class_weight: str = _data(
        "none", "let rare classes count as much as frequent ones (balanced)", flag=MORE, choices=("none", "balanced")
    )

    hidden: tuple[int, ...] = _network(
        (100,) * 9, "widths of the hidden layers: 9x100, or 800,400,200", flag=FIRST, on_resume="fixed"
    )
    activation: str = _network("relu", "activation of the hidden layers, or of each in turn: tanh,2xrelu", flag=FIRST)
    loss: str = _network(
        "cross_entropy", "what is minimised; squared and huber predict numbers", flag=FIRST, on_resume="fixed"
    )
    huber_delta: float = _network(
        1.0, "error, in units of the target's spread, from which the Huber loss grows linearly", above=0
    )

    method: str = _training(
        "pdadmm",
        "what trains the network: the paper's method, or one of those it is compared with",
        flag=FIRST,
        choices=METHODS,
        on_resume="hand-over",
    )
    epochs: int = _training(100, "passes over the training samples", flag=FIRST, on_resume="free", **_COUNT)
    seed: int = _training(0, "seed of the first weights", flag=FIRST, **_SEED)
    init_from: str | None = _training(
        None, "begin with the weights of this run or model, deepened where --hidden asks", flag=MORE, on_resume="free"
    )
    grow: str | None = _training(
        None,
        "begin with few layers and add the others later: 1+1@2 (one, then one more every 2 epochs), 0:2,5:all (two, "
        "all from epoch 5 on), off, or auto (two for half of the run; the default with exact)",
        flag=MORE,
        methods=_ADMM,
        on_resume="fixed",
    )
    tolerance: float = _training(
        0.0,
        "stop once the residual and the change of an epoch are this small, relative to the iterates; 0 never",
        methods=_ADMM,
        on_resume="free",
        at_least=0,
    )

    solver: str = _admm(
        "exact",
        "how p and W are updated: to the minimum (exact), or by the paper's gradient steps",
        flag=FIRST,
        choices=SOLVERS,
        on_resume="fixed",
    )
    learning_rate: float | None = _gradient(
        None, "of gd, adadelta, adagrad and adam (default: the published 0.01, 1, 0.1 and 0.001)", flag=MORE, above=0
    )
    batch_size: int | None = _gradient(
        None, "of the same: samples of a step, shuffled each epoch (default: all, as published)", flag=MORE, **_COUNT
    )
    step_size: str = _admm(
        "each", "of linearized: one step size per sample and neuron, or one per layer", choices=("each", "one")
    )
    nu: float | None = _both(
        None,
        "how strictly each layer's equation z = Wp + b is enforced (default: 0.01; dladmm: 1e-6)",
        flag=MORE,
        **_WEIGHT,
    )
    rho: float | None = _both(
        None,
        "how strictly a layer's input equals the output of the layer before, p = q (default: 0.3 nu with exact, else "
        "nu; dladmm: 1e-6)",
        flag=MORE,
        **_WEIGHT,
    )
    nu_output: float | None = _admm(None, "nu of the output layer (default: 10 nu with exact, else nu)", **_WEIGHT)
    z_prox: float | None = _admm(
        None,
        "weight of |z - z_old|², which keeps z near its last value (default: 0.01 with exact, else the paper's 1)",
        at_least=0,
    )
    p_relax: float | None = _admm(
        None, "of exact: how far p steps, where 1 is its minimiser (default: 1.3)", above=0, below=2
    )
    w_relax: float | None = _admm(
        None, "of exact: how far W steps, where 1 is its minimiser (default: 1.8)", above=0, below=2
    )
    z_relax: float | None = _admm(
        None,
        "how far z of a hidden layer steps where the activation is linear; 1 is its minimiser (default: 1.5 with "
        "exact, else 1)",
        at_least=1,
        below=2,
    )
    damping: float = _admm(
        0.03, "of exact: weight that keeps W near its last value, relative to its Gram matrix", at_least=0
    )
    ridge: float | None = _admm(
        None, "weight of |W|² at the start, in the unit of damping (default: 0.1 with exact, else 0)", at_least=0
    )
    ridge_final: float | None = _admm(
        None,
        "the same at the end; it falls geometrically (default: 25 by the number of samples, with fewer than 196 "
        "features less in proportion, at most 0.005)",
        at_least=0,
    )
    ridge_epochs: int | None = _admm(None, "epochs over which the ridge falls (default: three fifths of all)", **_COUNT)
    ridge_samples: int | None = _admm(
        None,
        "with more samples than this the ridge falls faster in proportion, up to five times as fast (default: 25000, "
        "and never where ridge_epochs is given)",
        **_COUNT,
    )
    l2: float = _method(0.0, "weight of |W|² in the objective, for every solver", at_least=0)
    init: str = _method(
        "he", "first weights: drawn from N(0, 2/fan-in), or from N(0, 0.1²) as the paper does", choices=("he", "paper")
    )
    init_output: str | None = _admm(
        None,
        "the output layer's first W and b: drawn as the others, or fitted to the labels (default with exact)",
        choices=("random", "regression"),
    )
    fit_output: str | None = _admm(
        None,
        "the output layer that is evaluated and saved: fitted to what the hidden layers give out (on, default with "
        "exact), or as the iteration leaves it",
        choices=("on", "off"),
    )
    output_solver: str = _both("newton", "how z of the output layer is found", choices=("newton", "fista"))
    output_tolerance: float = _both(1e-4, "relative residual at which that solver stops", above=0)
    output_steps: int = _both(50, "largest number of steps of that solver", **_COUNT)
    batches: int = _admm(
        1,
        "of exact: groups of samples visited one after the other in an epoch, with an update of W after each",
        **_COUNT,
    )
    grow_output: str = _admm(
        "keep",
        "when layers are added, keep the output layer or draw a fresh one as the authors do",
        choices=("keep", "fresh"),
    )

    workers: int = _machine(
        1, "processes that the layers are spread over", flag=FIRST, methods=_ADMM, on_resume="free", **_PROCESSES
    )
    shards: int = _machine(
        1, "groups of samples, each with workers of its own", flag=MORE, methods=_ADMM, on_resume="free", **_PROCESSES
    )
    threads: int | None = _machine(
        None,
        "threads of each process (default: OMP_NUM_THREADS, else usable cores)",
        flag=FIRST,
        on_resume="free",
        at_least=1,
        at_most=MOST_THREADS,
    )
    device: str = _machine("cpu", "torch device", flag=FIRST, on_resume="free")
    dtype: str = _machine(
        "float32", "precision of the arithmetic", flag=MORE, choices=("float32", "float64"), on_resume="fixed"
    )
    storage: str = _machine(
        "memory",
        "where arrays with a row for each sample live; disk maps files, so that samples may outgrow the memory",
        flag=FIRST,
        choices=("memory", "disk"),
        methods=_ADMM,
        on_resume="free",
    )
    storage_dir: str | None = _machine(
        None, "directory for those files (default: the run's own)", methods=_ADMM, on_resume="free"
    )
    placement: str | None = _machine(
        None, "number of layers of each worker, such as 5,5 (default: balanced)", methods=_ADMM, on_resume="free"
    )
    messages: str = _machine(
        "exact", "precision of the arrays that workers exchange", choices=("exact", "bfloat16"), methods=_ADMM
    )
    timeout: float = _machine(
        300.0,
        "seconds after which a silent process counts as lost",
        flag=MORE,
        on_resume="free",
        above=0,
        at_most=10**9,
    )
    restarts: int = _machine(
        3, "how often a run starts again by itself after a worker was lost", flag=MORE, on_resume="free", **_EVERY
    )

    evaluate_every: int = _run(1, "epochs between accuracies", on_resume="free", **_COUNT)
    stationarity_every: int = _run(
        10, "epochs between gradients of the Lagrangian; 0 never", on_resume="free", **_EVERY
    )
    checkpoint_every: int = _run(
        0, "epochs between checkpoints; 0: by the clock alone", flag=MORE, on_resume="free", **_EVERY
    )
    checkpoint_minutes: float = _run(
        5.0,
        "minutes between checkpoints; 0 for epochs alone, and none at all if both are 0",
        on_resume="free",
        at_least=0,
    )
    tensorboard: str = _run(
        "off",
        "write the history for TensorBoard too, into the run's tensorboard/; needs pdadmm[tensorboard]",
        flag=MORE,
        choices=("off", "on"),
        on_resume="free",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", _widths(self.hidden))
        object.__setattr__(self, "activation", format_names(parse_names(self.activation, len(self.hidden))))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is not None:
                raise UserError(f"{field.name} must be set; got None")
            if value is not None:
                # NumPy's numbers and texts are as good as Python's.
                value = _coerce(field, value.item() if isinstance(value, np.generic) else value)
                object.__setattr__(self, field.name, value)
                _check_value(field, value)
        self._check_together()
        self._check_method()

    def _check_together(self) -> None:
        """Options that are right by themselves and not beside each other."""
        if self.batches > 1 and (self.solver != "exact" or self.workers * self.shards > 1):
            raise UserError(
                f"batches need the exact solver and one worker; got {self.solver}, workers {self.workers} and "
                f"shards {self.shards}"
            )
        if not self.device.startswith("cpu") and self.workers * self.shards > 1:
            raise UserError(
                f"device {self.device} works in one process; workers {self.workers} and shards {self.shards} need "
                f"device cpu, because they exchange arrays in memory"
            )
        if self.ridge is not None and self.ridge_final is not None and self.ridge_final > self.ridge:
            raise UserError(
                f"ridge_final must not be above ridge, because the ridge may only fall; "
                f"got {self.ridge_final} above {self.ridge}"
            )

    def _check_method(self) -> None:
        """Refuse options of other methods than the one that is to train."""
        if self.method != "pdadmm" and self.workers * self.shards > 1:
            raise UserError(
                f"method {self.method} runs in one process; got workers {self.workers} and shards {self.shards}"
            )
        for field in dataclasses.fields(self):
            methods, value = field.metadata["methods"], getattr(self, field.name)
            unset = value == field.default or (field.name, value) == ("grow", "off")
            if self.method not in methods and not unset:
                raise UserError(
                    f"{field.name} is an option of method {', '.join(methods)} and does not go with {self.method}; "
                    f"got {_shown(value)}"
                )

    def resolved(self) -> Config:
        """The same options with every None replaced by the choice that suits the method and its solver.

        Options of another method stay as they are.
        """
        chosen = self._choices_of_method() if self.method == "pdadmm" else self._choices_of_rival()
        chosen["scaling"] = "standard" if Path(self.data).suffix else "global"
        return dataclasses.replace(self, **{name: v for name, v in chosen.items() if getattr(self, name) is None})

    def _choices_of_method(self) -> dict[str, Any]:
        exact = self.solver == "exact"
        nu = 1e-2 if self.nu is None else self.nu
        return {
            "nu": nu,
            "rho": 0.3 * nu if exact else nu,
            "nu_output": 10 * nu if exact else nu,
            "z_prox": 0.01 if exact else 1.0,
            "p_relax": 1.3 if exact else 1.0,
            "w_relax": 1.8 if exact else 1.0,
            "z_relax": 1.5 if exact else 1.0,
            "init_output": "regression" if exact else "random",
            "fit_output": "on" if exact else "off",
            "ridge": 0.1 if exact else 0.0,
            "ridge_epochs": max(1, 3 * self.epochs // 5),
            "ridge_samples": MANY_SAMPLES if self.ridge_epochs is None else None,
            "grow": "auto" if exact else "off",
        }

    def _choices_of_rival(self) -> dict[str, Any]:
        weight = 1e-6 if self.method == "dladmm" else None  # section V of the paper
        return {"learning_rate": LEARNING_RATES.get(self.method), "nu": weight, "rho": weight, "grow": "off"}

    def handed_over(self, method: str) -> Config:
        """The options with which another method goes on: those of some methods only are at their defaults."""
        if method == self.method:
            return self
        defaults: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(self) if f.name in OPTIONS_OF}
        return dataclasses.replace(self, **{**defaults, "grow": "off", "method": method})

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], source: str | None = None) -> Self:
        """Build from parsed TOML or JSON; a mistake in it is named as that of `source`, such as a file.

        Retired options may be there with the values that they had by default.
        """
        known = {field.name: field for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - set(known) - set(RETIRED))
        try:
            for name, value in values.items():
                if reason := _why_retired(name, value):
                    raise UserError(f"{name} {value} was removed: {reason}")
            if unknown:
                meant = did_you_mean(unknown[0], known)
                raise UserError(f"unknown option {unknown[0]!r}{meant}; known: {', '.join(known)}")
            return cls(**{name: _coerce(known[name], value) for name, value in values.items() if name in known})
        except UserError as error:
            raise UserError(f"{source}: {error}" if source else str(error)) from None

    @classmethod
    def from_stored(cls, values: Mapping[str, Any], source: str | None = None) -> Self:
        """The same for what is done with a finished run: whatever retired options it had, its model can be read."""
        kept = {name: v for name, v in values.items() if name not in RETIRED and not _why_retired(name, v)}
        return cls.from_mapping(kept, source)

    @property
    def saves(self) -> bool:
        """Whether a run writes checkpoints."""
        return bool(self.checkpoint_every or self.checkpoint_minutes)

    def check_resumes(self, saved: Config, allow_changes: bool) -> list[str]:
        """Refuse to go on with a run that was begun with other options; returns the changes that were allowed.

        Both configurations must be resolved.
        """
        free = {f.name for f in dataclasses.fields(self) if f.metadata["on_resume"] == "free"}
        if self.messages != "exact":
            free -= {"workers", "shards", "placement"}  # what is rounded depends on where the layers are
        changes = []
        for field in dataclasses.fields(self):
            before, now = getattr(saved, field.name), getattr(self, field.name)
            begins_anew = self.method != saved.method and field.name in OPTIONS_OF
            if before == now or field.name in free or begins_anew:
                continue
            both = f"{field.name} was {_shown(before)} and is now {_shown(now)}"
            if field.metadata["on_resume"] == "fixed":
                raise UserError(f"{both}, which a resumed run cannot change; start a new run (perhaps --init-from)")
            if not allow_changes:
                raise UserError(f"{both}, which changes what is computed; give --allow-changes if that is meant")
            changes.append(both)
        return changes

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, without the options that are not set."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["hidden"] = format_hidden(self.hidden)
        return {name: value for name, value in values.items() if value is not None}


OPTIONS_OF: dict[str, tuple[str, ...]] = {
    field.name: field.metadata["methods"]
    for field in dataclasses.fields(Config)
    if field.metadata["methods"] != METHODS
}
"""The options that only these methods have; all others are everyone's."""


def _why_retired(name: str, value: Any) -> str:
    """Why an option, or this value of it, is no longer there; empty where it is, or had its default."""
    if name in RETIRED:
        default, reason = RETIRED[name]
        return "" if value == default else reason
    return RETIRED_VALUES.get((name, str(value)), "")


def _shown(value: Any) -> str:
    return "not set" if value is None else format_hidden(value) if isinstance(value, tuple) else str(value)


def _check_value(field: dataclasses.Field[Any], value: Any) -> None:
    """Whether one option's value is among its choices and within its bounds."""
    name, choices, bounds = field.name, field.metadata["choices"], field.metadata["bounds"]
    if choices and value not in choices:
        raise UserError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    # A file's name may be any bytes; Python stands them in by lone surrogates, which no text file can hold.
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise UserError(f"{name} must be UTF-8, as config.toml is; got {value!r}")
    if name == "hidden" and not value:
        raise UserError("hidden must have at least one layer; got none")
    if name == "hidden" and any(width < 1 for width in value):
        raise UserError(f"hidden widths must be at least 1; got {format_hidden(value)}")
    if name == "hidden" and max(value) > LARGEST_COUNT:
        raise UserError(f"hidden widths must be at most {LARGEST_COUNT}; got {format_hidden(value)}")
    if not isinstance(value, int | float):
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{name} must be a finite number; got {value}")
    holds = {"above": operator.gt, "at_least": operator.ge, "below": operator.lt, "at_most": operator.le}
    for bound, limit in bounds.items():
        if not holds[bound](value, limit):
            raise UserError(f"{name} must be {bound.replace('_', ' ')} {limit}; got {value}")


PRESETS: dict[str, dict[str, Any]] = {
    # Section V of the paper: five hidden layers first, then all. It does not say for how long; we take 20 epochs.
    "paper": {
        "nu": 1e-4,
        "rho": 1e-4,
        "solver": "backtracking",
        "init": "paper",
        "grow": "0:5,20:all",
        "grow_output": "fresh",
    },
}


def _widths(hidden: object) -> tuple[int, ...]:
    """The widths, also where they are given as the command line has them."""
    if isinstance(hidden, str):
        return parse_hidden(hidden)
    widths = hidden if isinstance(hidden, Iterable) else (hidden,)
    plain: tuple[Any, ...] = tuple(width.item() if isinstance(width, np.generic) else width for width in widths)
    if isinstance(hidden, Iterable) and all(type(width) is int for width in plain):
        return plain
    raise UserError(f"hidden must be widths such as (100, 100) or '2x100'; got {plain!r}")


def read_toml(path: Path) -> dict[str, Any]:
    """The options in a TOML file, as plain values by name."""
    try:
        return _flat(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"cannot read the configuration {path}: {error.strerror}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:  # a number of too many digits is a ValueError of its own
        raise UserError(f"{path} is not a TOML file: {error}") from None


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    """The options of a file, with those in its table `[method]` beside the others."""
    table = found.get("method")
    if not isinstance(table, dict):
        return found
    inner = {("method" if key == "name" else key): value for key, value in table.items()}
    outer = {key: value for key, value in found.items() if key != "method"}
    if twice := sorted(inner.keys() & outer.keys()):
        raise UserError(f"{twice[0]} is given twice, in the table [method] and outside it")
    return outer | inner


def to_toml(config: Config) -> str:
    """A complete file, grouped and commented, that `read_toml` reads back to an equal configuration.

    The options of the method are in the table `[method]`, which is the last and has the method's name as `name`.
    """
    values = config.to_mapping()
    groups: dict[str, list[str]] = {}
    for field in dataclasses.fields(Config):
        group, key = ("method", "name") if field.name == "method" else (field.metadata["group"], field.name)
        # JSON's strings, numbers and booleans are TOML's as well.
        shown = json.dumps(values[field.name], ensure_ascii=False) if field.name in values else None
        shown = shown and shown.replace("\x7f", "\\u007f")  # the one control character that JSON leaves as it is
        setting = f"{key} = {shown}" if shown is not None else f"# {key} is not set"
        groups.setdefault(group, []).append(f"{setting}  # {field.metadata['help']}")
    method = groups.pop("method")
    parts = [[f"# --- {group}", *lines] for group, lines in groups.items()]
    return "\n\n".join("\n".join(lines) for lines in [*parts, ["[method]", *method]]) + "\n"


def flag_of(name: str) -> str:
    """The flag of an option that has one."""
    return f"--{name.replace('_', '-')}"


def _coerce(field: dataclasses.Field[Any], value: Any) -> Any:
    """`value` as the type of `field`, where that loses nothing."""
    if field.name == "hidden":
        if isinstance(value, str):
            return parse_hidden(value)
        if isinstance(value, list | tuple) and all(type(width) is int for width in value):
            return tuple(value)
        raise UserError(f"hidden must be a text such as '9x500' or a list of widths; got {value!r}")
    kind = str(field.type).split(" | ")[0]
    if kind == "float" and (type(value) is float or (type(value) is int and abs(value) <= sys.float_info.max)):
        return float(value)
    if kind == "int" and type(value) is int:
        return value
    if kind == "str" and isinstance(value, str):
        return value
    names = {"float": "a number", "int": "a whole number", "str": "a text"}
    raise UserError(f"{field.name} must be {names[kind]}; got {value!r}")
