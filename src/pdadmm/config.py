"""Every option of a run, in one frozen, checked and self-describing place.

`Config` is the only source of option names: the command line makes its flags from it, `config.toml` has its keys,
and the library takes it as it is. An option left at None means "choose well for the solver"; `Config.resolved`
makes that choice, so that what a run writes down is complete and can be run again.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pdadmm.errors import UserError, did_you_mean
from pdadmm.notation import format_hidden, format_names, parse_hidden, parse_names

SOLVERS = ("exact", "linearized", "backtracking")
LEARNING_RATES = {"gd": 0.01, "adadelta": 1.0, "adagrad": 0.1, "adam": 0.001}
"""The gradient methods, with the learning rates of the paper's section V."""
METHODS = ("pdadmm", *LEARNING_RATES, "dladmm")
OPTIONS_OF: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("solver", "step_size", "damping"), ("pdadmm",)),
    **dict.fromkeys(("ridge", "ridge_final", "ridge_epochs", "ridge_samples"), ("pdadmm",)),
    **dict.fromkeys(("nu_output", "z_prox", "p_relax", "w_relax", "z_relax", "init_output", "fit_output"), ("pdadmm",)),
    **dict.fromkeys(("batches", "grow", "grow_output", "workers", "shards", "placement", "messages"), ("pdadmm",)),
    **dict.fromkeys(("tolerance", "storage", "storage_dir"), ("pdadmm",)),
    **dict.fromkeys(("nu", "rho", "output_solver", "output_tolerance", "output_steps"), ("pdadmm", "dladmm")),
    **dict.fromkeys(("learning_rate", "batch_size"), tuple(LEARNING_RATES)),
}
"""The options that only these methods have; all others are everyone's."""
RETIRED: dict[str, tuple[Any, str]] = {
    "products": ("standard", "other arithmetic for the large products spoiled the training or changed little"),
    "compile": ("off", "compiled kernels saved 5 % of an epoch"),
    "tile_rows": (None, "tiles are as large as the width and this machine's cache suggest"),
}
"""Options of earlier versions: what they were by default, and why they are gone."""
RETIRED_VALUES = {("messages", "int8"): "bfloat16 gains as much on a slow link and is nearer to exact"}
"""Values of earlier versions, and why they are gone."""
MANY_SAMPLES = 25_000  # from here on the ridge of exact has less to guard against; docs/tuning.md has the figures
LARGEST_WEIGHT = 3e38
MOST_THREADS = 1024  # a pool of many more brings the process down


def _option(default: Any, group: str, help: str, choices: tuple[str, ...] = (), on_resume: str = "kept") -> Any:
    """A field that carries its own help, and what a resumed run may do with it.

    `free`: change it, the trajectory stays the same. `kept`: it shapes the trajectory, so a change must be allowed.
    `fixed`: what is saved would not fit. `hand-over`: if it is allowed, another method goes on with the weights alone.
    """
    metadata = {"group": group, "help": help, "choices": choices, "on_resume": on_resume}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The options of one training run."""

    # Files may move; that the data is the same is found out by its fingerprint.
    data: str = _option("digits", "data", "a data set's name, or a .npz, .csv or .parquet file", on_resume="free")
    target: str | None = _option(None, "data", "target column of a .csv or .parquet file (default: the last)")
    weight: str | None = _option(None, "data", "column with sample weights")
    test_fraction: float = _option(0.2, "data", "share held out where the data has no test part; 0 for none")
    split_seed: int = _option(0, "data", "seed of that split")
    scaling: str | None = _option(
        None,
        "data",
        "features: mean 0 and spread 1 each (standard), or with one spread for all as images need (global), or to "
        "[0, 1] (minmax); default standard for files, global for named data sets",
        ("standard", "global", "minmax", "none"),
    )
    class_weight: str = _option("none", "data", "weight classes by 1/frequency", ("none", "balanced"))

    hidden: tuple[int, ...] = _option((100,) * 9, "network", "hidden widths: 9x100 or 800,400,200", on_resume="fixed")
    activation: str = _option("relu", "network", "activation of the hidden layers, or of each: tanh,2xrelu")
    loss: str = _option(
        "cross_entropy", "network", "risk of the output; squared and huber make y real-valued", on_resume="fixed"
    )
    huber_delta: float = _option(1.0, "network", "where the Huber loss turns linear, in units of y's spread")

    method: str = _option(
        "pdadmm",
        "method",
        "what trains the network: the paper's method or one of its rivals; the options below that a rival does not "
        "have are refused with it",
        METHODS,
        on_resume="hand-over",
    )
    learning_rate: float | None = _option(
        None, "method", "of gd, adadelta, adagrad and adam (default: the published 0.01, 1, 0.1 and 0.001)"
    )
    batch_size: int | None = _option(
        None, "method", "of the same: samples of a step, shuffled each epoch (default: all, as published)"
    )
    solver: str = _option("exact", "method", "how p and W are updated", SOLVERS, on_resume="fixed")
    step_size: str = _option(
        "each", "method", "linearized: one step size per sample and neuron, or one per layer", ("each", "one")
    )
    nu: float | None = _option(None, "method", "weight of the relaxed layer equations (default: 0.01; dladmm: 1e-6)")
    rho: float | None = _option(
        None, "method", "weight of the constraint p = q (default: 0.3 nu with exact, else nu; dladmm: 1e-6)"
    )
    nu_output: float | None = _option(
        None, "method", "nu of the output layer's equation (default: 10 nu with exact, else nu)"
    )
    z_prox: float | None = _option(
        None, "method", "weight of |z - z_old|² (default: 0.01 with exact, else the paper's 1)"
    )
    p_relax: float | None = _option(
        None, "method", "exact: how far p steps, 1 being its minimiser, below 2 (default: 1.3)"
    )
    w_relax: float | None = _option(
        None, "method", "exact: how far W steps, 1 being its minimiser, below 2 (default: 1.8)"
    )
    z_relax: float | None = _option(
        None,
        "method",
        "how far z of a hidden layer steps on its linear piece, from 1, its minimiser, to below 2 (default: 1.5 with "
        "exact, else 1)",
    )
    damping: float = _option(0.03, "method", "exact: proximal damping of W, relative to its Gram matrix")
    ridge: float | None = _option(
        None, "method", "ridge on W at the start, in the same unit (default: 0.1 with exact, else 0)"
    )
    ridge_final: float | None = _option(
        None,
        "method",
        "ridge at the end; it falls geometrically (default: 25 by the number of samples, with fewer than 196 features "
        "less in proportion, at most 0.005)",
    )
    ridge_epochs: int | None = _option(
        None, "method", "epochs over which the ridge falls (default: three fifths of all)"
    )
    ridge_samples: int | None = _option(
        None,
        "method",
        "with more samples than this the ridge falls faster in proportion, up to five times as fast (default: 25000, "
        "and never where ridge_epochs is given)",
    )
    l2: float = _option(0.0, "method", "plain L2 weight on W, for every solver")
    init: str = _option("he", "method", "initial W: N(0, 2/fan-in), or N(0, 0.1²) as the paper", ("he", "paper"))
    init_output: str | None = _option(
        None,
        "method",
        "exact: the output layer's first W and b: drawn as the others, or fitted to the labels (the default)",
        ("random", "regression"),
    )
    fit_output: str | None = _option(
        None,
        "method",
        "the output layer that is evaluated and saved: fitted to what the hidden layers give out (on, the default with "
        "exact), or as the iteration leaves it",
        ("on", "off"),
    )
    init_from: str | None = _option(
        None, "method", "start from this run or model, deepened where --hidden asks", on_resume="free"
    )
    output_solver: str = _option("newton", "method", "how z of the output is found", ("newton", "fista"))
    output_tolerance: float = _option(1e-4, "method", "relative residual at which that solver stops")
    output_steps: int = _option(50, "method", "largest number of steps of that solver")

    batches: int = _option(
        1, "method", "exact: groups of samples visited one after the other in an epoch, with a W-step after each"
    )

    grow: str | None = _option(
        None,
        "growth",
        "depth by epoch: 1+1@2 (one layer, one more every 2 epochs), 0:2,5:all (two, all from epoch 5 on), off, or "
        "auto (two for half of the run, then all; the default with exact)",
        on_resume="fixed",
    )
    grow_output: str = _option(
        "keep",
        "growth",
        "at growth keep the output layer, or start a fresh one as the authors",
        ("keep", "fresh"),
    )

    workers: int = _option(1, "workers", "processes that the layers are spread over", on_resume="free")
    shards: int = _option(1, "workers", "sets of samples, each with workers of its own", on_resume="free")
    placement: str | None = _option(
        None, "workers", "layers of each worker, such as 5,5 (default: balanced)", on_resume="free"
    )
    messages: str = _option("exact", "workers", "precision of the arrays that workers exchange", ("exact", "bfloat16"))
    timeout: float = _option(300.0, "workers", "seconds after which a silent process counts as lost", on_resume="free")
    restarts: int = _option(
        3, "workers", "how often a run starts again by itself after a worker was lost", on_resume="free"
    )

    epochs: int = _option(100, "run", "iterations over the whole training set", on_resume="free")
    tolerance: float = _option(
        0.0, "run", "stop once residual and change are this small, relatively; 0 never", on_resume="free"
    )
    seed: int = _option(0, "run", "seed of the initial weights")
    dtype: str = _option("float32", "run", "arithmetic", ("float32", "float64"), on_resume="fixed")
    device: str = _option("cpu", "run", "torch device", on_resume="free")
    threads: int | None = _option(
        None, "run", "threads (default: OMP_NUM_THREADS, else usable cores)", on_resume="free"
    )
    storage: str = _option(
        "memory",
        "run",
        "where arrays with a row for each sample live; disk maps files, so that memory no longer bounds the samples",
        ("memory", "disk"),
        on_resume="free",
    )
    storage_dir: str | None = _option(
        None, "run", "directory for the files of --storage disk (default: the run's own)", on_resume="free"
    )
    evaluate_every: int = _option(1, "run", "epochs between accuracies", on_resume="free")
    stationarity_every: int = _option(
        10, "run", "epochs between gradients of the Lagrangian; 0 never", on_resume="free"
    )
    checkpoint_every: int = _option(0, "run", "epochs between checkpoints; 0 for minutes alone", on_resume="free")
    checkpoint_minutes: float = _option(
        5.0, "run", "minutes between checkpoints; 0 for epochs alone, and none at all if both are 0", on_resume="free"
    )
    tensorboard: str = _option(
        "off",
        "run",
        "write the history as event files for TensorBoard too, into the run's tensorboard/; needs its extra",
        ("off", "on"),
        on_resume="free",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", _widths(self.hidden))
        object.__setattr__(self, "activation", format_names(parse_names(self.activation, len(self.hidden))))
        for field in dataclasses.fields(self):
            value, choices = getattr(self, field.name), field.metadata["choices"]
            if choices and value is not None and value not in choices:
                raise UserError(f"{field.name} must be one of {', '.join(choices)}; got {value!r}")
            # A file's name may be any bytes; Python stands them in by lone surrogates, which no text file can hold.
            if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
                raise UserError(f"{field.name} must be UTF-8, as config.toml is; got {value!r}")
        self._check_numbers()
        self._check_together()
        self._check_method()

    def _check_method(self) -> None:
        """Refuse options of other methods than the one that is to train."""
        if self.method != "pdadmm" and self.workers * self.shards > 1:
            raise UserError(
                f"method {self.method} runs in one process; got workers {self.workers} and shards {self.shards}"
            )
        for field in dataclasses.fields(self):
            methods, value = OPTIONS_OF.get(field.name, METHODS), getattr(self, field.name)
            unset = value == field.default or (field.name, value) == ("grow", "off")
            if self.method not in methods and not unset:
                raise UserError(
                    f"{field.name} is an option of method {', '.join(methods)} and does not go with {self.method}; "
                    f"got {_shown(value)}"
                )

    def _check_numbers(self) -> None:
        weights = ("nu", "nu_output", "rho", "p_relax", "w_relax", "z_relax")
        positive = (*weights, "learning_rate", "huber_delta", "output_tolerance", "timeout")
        at_least_0 = ("z_prox", "damping", "ridge", "ridge_final", "l2", "tolerance", "checkpoint_minutes")
        counts = ("workers", "shards", "batches", "epochs", "ridge_epochs", "ridge_samples", "evaluate_every")
        at_least_1 = (*counts, "batch_size", "output_steps", "threads")
        for name in positive + at_least_0 + at_least_1:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"{name} must be a finite number; got {value}")
            if name in positive and value <= 0:
                raise UserError(f"{name} must be positive; got {value}")
            if name in at_least_0 and value < 0:
                raise UserError(f"{name} must not be negative; got {value}")
            if name in at_least_1 and value < 1:
                raise UserError(f"{name} must be at least 1; got {value}")
        for name in ("stationarity_every", "checkpoint_every", "restarts", "seed", "split_seed"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be negative; got {getattr(self, name)}")
        if not 0 <= self.test_fraction < 1:
            raise UserError(f"test_fraction must be at least 0 and below 1; got {self.test_fraction}")
        for name in ("nu", "nu_output", "rho"):
            value = getattr(self, name)
            if value is not None and value > LARGEST_WEIGHT:
                raise UserError(f"{name} must be at most {LARGEST_WEIGHT:g}, as float32 has; got {value:g}")
        if self.z_relax is not None and self.z_relax < 1:
            raise UserError(f"z_relax must be at least 1; got {self.z_relax}")
        for name in ("p_relax", "w_relax", "z_relax"):
            relax = getattr(self, name)
            if relax is not None and relax >= 2:
                raise UserError(f"{name} must be below 2, where L_rho would no longer fall; got {relax}")
        if self.threads is not None and self.threads > MOST_THREADS:
            raise UserError(f"threads must be at most {MOST_THREADS}; got {self.threads}")
        if not self.hidden:
            raise UserError("hidden must have at least one layer; got none")
        if any(width < 1 for width in self.hidden):
            raise UserError(f"hidden widths must be at least 1; got {format_hidden(self.hidden)}")

    def _check_together(self) -> None:
        """Options that are right by themselves and not beside each other."""
        if self.batches > 1 and (self.solver != "exact" or self.workers * self.shards > 1):
            raise UserError(
                f"batches need the exact solver and one worker; got {self.solver}, workers {self.workers} and "
                f"shards {self.shards}"
            )
        if self.ridge is not None and self.ridge_final is not None and self.ridge_final > self.ridge:
            raise UserError(
                f"ridge_final must not be above ridge, because the ridge may only fall; "
                f"got {self.ridge_final} above {self.ridge}"
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


def _why_retired(name: str, value: Any) -> str:
    """Why an option, or this value of it, is no longer there; empty where it is, or had its default."""
    if name in RETIRED:
        default, reason = RETIRED[name]
        return "" if value == default else reason
    return RETIRED_VALUES.get((name, str(value)), "")


def _shown(value: Any) -> str:
    return "not set" if value is None else format_hidden(value) if isinstance(value, tuple) else str(value)


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
    widths = tuple(hidden) if isinstance(hidden, Iterable) else (None,)
    if all(isinstance(width, int) for width in widths):
        return widths
    raise UserError(f"hidden must be widths such as (100, 100) or '2x100'; got {hidden!r}")


def read_toml(path: Path) -> dict[str, Any]:
    """The options in a TOML file, as plain values."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # a number of too many digits is a ValueError of its own
        raise UserError(f"{path} is not a TOML file: {error}") from None


def to_toml(config: Config) -> str:
    """A complete file, grouped and commented, that `read_toml` reads back to an equal configuration."""
    values = config.to_mapping()
    lines, group = [], ""
    for field in dataclasses.fields(Config):
        if field.metadata["group"] != group:
            group = field.metadata["group"]
            lines += ["", f"# --- {group}"]
        # JSON's strings, numbers and booleans are TOML's as well.
        shown = json.dumps(values[field.name], ensure_ascii=False) if field.name in values else None
        setting = f"{field.name} = {shown}" if shown is not None else f"# {field.name} is not set"
        lines.append(f"{setting}  # {field.metadata['help']}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _coerce(field: dataclasses.Field[Any], value: Any) -> Any:
    """`value` as the type of `field`, where that loses nothing."""
    if field.name == "hidden":
        if isinstance(value, str):
            return parse_hidden(value)
        if isinstance(value, list | tuple) and all(type(width) is int for width in value):
            return tuple(value)
        raise UserError(f"hidden must be a text such as '9x500' or a list of widths; got {value!r}")
    kind = str(field.type).split(" | ")[0]
    if kind == "float" and type(value) in (int, float):
        return float(value)
    if kind == "int" and type(value) is int:
        return value
    if kind == "str" and isinstance(value, str):
        return value
    names = {"float": "a number", "int": "a whole number", "str": "a text"}
    raise UserError(f"{field.name} must be {names[kind]}; got {value!r}")
