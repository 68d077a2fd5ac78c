"""Every z-subproblem against brute force, and every activation against its definition."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from brute import minimise_1d
from pdadmm.errors import UserError
from pdadmm.math.activations import Activation, PiecewiseLinear, activation_names, get_activation

NAMES = activation_names()
PIECEWISE = [name for name in NAMES if isinstance(get_activation(name), PiecewiseLinear)]
SMOOTH = [name for name in NAMES if name not in PIECEWISE]
WEIGHTS = (1.0, 0.1, 0.0)
ACCURACY = 1e-6  # what pdadmm.math.lookup states, relative to 1 + q²


def subproblem(f: Activation, z: Tensor, a: Tensor, q: Tensor, z_old: Tensor, c: float) -> Tensor:
    value = f.forward(z.contiguous(), torch.empty_like(z.contiguous()))
    return (z - a) ** 2 + (q - value) ** 2 + c * (z - z_old) ** 2


def excess(name: str, a: Tensor, q: Tensor, z_old: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """How much the z-step's value exceeds the brute-force minimum, and the z-step's own result."""
    f = get_activation(name)
    z = f.z_step(a, q, z_old, c, torch.empty_like(a))
    # The minimiser lies where the quadratic part does not already exceed the value at z_old.
    reach = (a.abs() + z_old.abs() + q.abs() + 2) * 2
    best = minimise_1d(lambda grid: subproblem(f, grid, a[:, None], q[:, None], z_old[:, None], c), -reach, reach)
    return subproblem(f, z, a, q, z_old, c) - best, z


@pytest.mark.parametrize("c", WEIGHTS)
@pytest.mark.parametrize("name", NAMES)
def test_z_step_is_the_global_minimum_on_random_points(name: str, c: float) -> None:
    generator = torch.Generator().manual_seed(1)
    a, q, z_old = (3 * torch.randn(400, generator=generator, dtype=torch.float64) for _ in range(3))
    over, _ = excess(name, a, q, z_old, c)
    assert float((over / (1 + q**2)).max()) < (1e-9 if name in PIECEWISE else ACCURACY)


@pytest.mark.parametrize("c", WEIGHTS)
@pytest.mark.parametrize("name", NAMES)
def test_z_step_at_kinks_ties_and_jumps(name: str, c: float) -> None:
    """Every combination of special values: kinks of f, q where the minimiser jumps, zeros, and large ones."""
    special = torch.tensor([-20.0, -3.0, -1.0, -0.01, 0.0, 1e-12, 1.0, 3.0, 20.0]).double()
    a, q, z_old = (grid.reshape(-1) for grid in torch.meshgrid(special, special, special, indexing="ij"))
    worst = 0.0
    for part in torch.arange(len(a)).split(400):
        over, _ = excess(name, a[part], q[part], z_old[part], c)
        worst = max(worst, float((over / (1 + q[part] ** 2)).max()))
    assert worst < (1e-7 if name in PIECEWISE else ACCURACY)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_z_step_with_huge_values_stays_finite_and_no_worse_than_z_old(name: str, dtype: torch.dtype) -> None:
    f = get_activation(name)
    huge = torch.tensor([-1e15, -1e6, 0.0, 1e6, 1e15], dtype=dtype)
    a, q, z_old = (grid.reshape(-1) for grid in torch.meshgrid(huge, huge, huge, indexing="ij"))
    z = f.z_step(a, q, z_old, 1.0, torch.empty_like(a))
    assert bool(torch.isfinite(z).all())
    new, old = (subproblem(f, v.double(), a.double(), q.double(), z_old.double(), 1.0) for v in (z, z_old))
    assert bool((new <= old * (1 + 8 * torch.finfo(dtype).eps)).all())


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    a=st.floats(-12, 12),
    q=st.floats(-12, 12),
    z_old=st.floats(-12, 12),
    c=st.sampled_from(WEIGHTS),
)
def test_z_step_property(name: str, a: float, q: float, z_old: float, c: float) -> None:
    a_, q_, old = (torch.tensor([v], dtype=torch.float64) for v in (a, q, z_old))
    over, z = excess(name, a_, q_, old, c)
    assert float(over) / (1 + q**2) < (1e-9 if name in PIECEWISE else ACCURACY)
    # Descent by the proximal term is what the certificate uses.
    f, one = get_activation(name), torch.ones(1, dtype=torch.float64)
    drop = subproblem(f, z_old * one, a * one, q * one, z_old * one, 0.0) - subproblem(
        f, z, a * one, q * one, z_old * one, 0.0
    )
    assert float(drop) >= c * (float(z) - z_old) ** 2 - 1e-9 * (1 + q**2 + a**2 + z_old**2)


@settings(max_examples=300, deadline=None)
@given(a=st.floats(-5, 5), q=st.floats(-5, 5), z_old=st.floats(-5, 5), c=st.floats(0, 3))
def test_relu_shortcut_equals_the_general_form(a: float, q: float, z_old: float, c: float) -> None:
    f = get_activation("relu")
    assert isinstance(f, PiecewiseLinear)
    a_, q_, old = (torch.tensor([v], dtype=torch.float64) for v in (a, q, z_old))
    short = f.z_step(a_, q_, old, c, torch.empty_like(a_))
    general = PiecewiseLinear.z_step(f, a_, q_, old, c, torch.empty_like(a_))
    values = [float(subproblem(f, z, a_, q_, old, c)) for z in (short, general)]
    assert values[0] == pytest.approx(values[1], rel=1e-12, abs=1e-12)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    a=st.floats(-5, 5),
    q=st.floats(-5, 5),
    z_old=st.floats(-5, 5),
    c=st.floats(0, 3),
    relax=st.floats(1, 1.999),
)
def test_beyond_the_minimiser_the_subproblem_still_falls(
    name: str, a: float, q: float, z_old: float, c: float, relax: float
) -> None:
    f = get_activation(name)
    a_, q_, old = (torch.tensor([v], dtype=torch.float64) for v in (a, q, z_old))
    z = f.beyond(old, f.z_step(a_, q_, old, c, torch.empty(1).double()), relax, torch.empty(1).double())
    drop = subproblem(f, old, a_, q_, old, 0.0) - subproblem(f, z, a_, q_, old, 0.0)
    assert float(drop) >= c * float(z - old) ** 2 - 1e-9 * (1 + q**2 + a**2 + z_old**2)


@pytest.mark.parametrize(
    ("name", "z_old", "z", "there"),
    [
        ("relu", 1.0, 1.5, 1.9),  # 1.8 times as far
        ("relu", -1.0, -1.5, -1.9),
        ("relu", 0.1, 0.5, 0.6),  # but no further past z than z_old is from 0
        ("relu", 1.0, 0.2, 0.0),  # and not across it
        ("relu", -1.0, 0.5, 0.5),  # on two sides there are two parabolas
        ("relu", 0.0, 0.5, 0.5),
        ("relu", 1e-15, 0.5, 0.5 + 1e-15),
        ("hardtanh", 0.5, 0.9, 1.0),
        ("hardtanh", 0.0, 0.2, 0.36),
        ("hardtanh", 0.5, 1.5, 1.5),
        ("identity", 0.0, 1.0, 1.8),
        ("tanh", 0.0, 1.0, 1.0),
    ],
)
def test_how_far_beyond(name: str, z_old: float, z: float, there: float) -> None:
    old, new = (torch.tensor([value], dtype=torch.float64) for value in (z_old, z))
    assert float(get_activation(name).beyond(old, new, 1.8, torch.empty_like(old))) == pytest.approx(there, abs=1e-14)


def test_relus_short_form_goes_as_far_as_the_general_one() -> None:
    f = get_activation("relu")
    assert isinstance(f, PiecewiseLinear)
    special = torch.tensor([-2.0, -1.0, -0.1, 0.0, 1e-12, 0.1, 1.0, 2.0, math.nan]).double()
    old, new = (grid.reshape(-1) for grid in torch.meshgrid(special, special, indexing="ij"))
    short, general = (kind.beyond(f, old, new, 1.8, torch.empty_like(old)) for kind in (type(f), PiecewiseLinear))
    known = ~(old.isnan() | new.isnan())
    torch.testing.assert_close(short[known], general[known], rtol=1e-12, atol=1e-14)
    assert bool(short[new.isnan()].isnan().all())


def test_relu_compares_the_whole_subproblem() -> None:
    """The authors' program leaves |z - z_old|² out and would stay positive here; the minimum is negative."""
    f = get_activation("relu")
    a, q, z_old = (torch.tensor([v]) for v in (0.5, 0.5, -3.0))
    z = f.z_step(a, q, z_old, 1.0, torch.empty(1))
    assert float(z) == pytest.approx((0.5 - 3.0) / 2)


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_the_derivative(name: str) -> None:
    f = get_activation(name)
    z = torch.tensor([-7.3, -1.5, -0.4, 0.3, 0.9, 2.2], dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        numeric = (f.forward(z + 1e-6, torch.empty(6).double()) - f.forward(z - 1e-6, torch.empty(6).double())) / 2e-6
        left, right = f.slopes(z)
    torch.testing.assert_close(left, numeric, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(left, right)


def test_slopes_at_kinks_are_one_sided() -> None:
    zero, ends = torch.zeros(1), torch.tensor([-1.0, 1.0])
    assert [s.tolist() for s in get_activation("relu").slopes(zero)] == [[0.0], [1.0]]
    assert [s.tolist() for s in get_activation("hardtanh").slopes(ends)] == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize("name", NAMES)
def test_lipschitz_and_idempotence_are_as_declared(name: str) -> None:
    f = get_activation(name)
    z = torch.linspace(-6, 6, 2001, dtype=torch.float64)
    once = f.forward(z, torch.empty_like(z))
    assert float(once.diff().abs().max() / z.diff()[0]) <= f.lipschitz * (1 + 1e-9)
    twice = f.forward(once, torch.empty_like(z))
    assert torch.allclose(once, twice) == f.idempotent


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"one of relu, .*; got 'swish'"):
        get_activation("swish")


def test_table_and_search_agree_across_the_jump() -> None:
    """tanh with c = 1 jumps from |q| of 3: on a line across the jump, the look-up is as good as a search."""
    v = torch.linspace(-4, 4, 3001, dtype=torch.float64)
    for q in (2.9, 2.99, -2.95, 5.0, 40.0):
        over, _ = excess("tanh", v, torch.full_like(v, q), torch.zeros_like(v), 1.0)
        assert float(over.max()) < ACCURACY * (1 + q * q)
    assert not math.isnan(float(over.sum()))


@pytest.mark.parametrize("c", [0.01, 1.0, 10.0])
@pytest.mark.parametrize("name", SMOOTH)
def test_z_step_where_a_basin_splits_in_two(name: str, c: float) -> None:
    """Where three derivatives of F vanish the minimiser changes fastest, and nearby it begins to jump."""
    f = get_activation(name)
    z = torch.linspace(-4, 0, 4002, dtype=torch.float64)[:-1]
    value = f.forward(z, torch.empty_like(z))
    slope, _ = f.slopes(z)
    splits = value + (1 + c + slope**2) / torch.gradient(slope, spacing=(z,))[0]
    at = int(splits[:-1].argmin())
    offsets = torch.tensor([-0.3, -0.03, -1e-3, -1e-5, 0.0, 1e-5, 1e-3, 0.03, 0.3], dtype=torch.float64)
    dv, dq = (grid.reshape(-1) for grid in torch.meshgrid(offsets, offsets, indexing="ij"))
    q = splits[at] + dq
    a = (1 + c) * (z[at] + dv) - (q - value[at]) * slope[at]
    over, _ = excess(name, a, q, torch.zeros_like(a), c)
    assert float((over / (1 + q**2)).max()) < ACCURACY


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_z_step_has_the_same_bits_however_it_is_split(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    a, q, z_old = (3 * torch.randn(70_001, generator=generator, dtype=dtype) for _ in range(3))
    f = get_activation(name)
    whole = f.z_step(a, q, z_old, 0.1, torch.empty_like(a))
    for size in (9_973, 65_536):
        parts = zip(a.split(size), q.split(size), z_old.split(size), strict=True)
        assert torch.equal(torch.cat([f.z_step(*part, 0.1, torch.empty_like(part[0])) for part in parts]), whole)
    backwards = f.z_step(a.flip(0), q.flip(0), z_old.flip(0), 0.1, torch.empty_like(a))
    assert torch.equal(backwards.flip(0), whole)
    in_columns = torch.empty(70_001, 2, dtype=dtype)[:, 0]
    assert torch.equal(f.z_step(a, q, z_old, 0.1, in_columns), whole)
    assert torch.equal(f.z_step(a, q, z_old, 0.1, z_old), whole)


@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_z_step_passes_nan_on(name: str) -> None:
    a, q, z_old = (torch.where(torch.arange(4) == i, torch.nan, 0.5) for i in range(3))
    z = get_activation(name).z_step(a, q, z_old, 1.0, torch.empty(4))
    assert torch.isnan(z).tolist() == [True, True, True, False]


@pytest.mark.parametrize("name", NAMES)
def test_forward_may_overwrite_its_argument(name: str) -> None:
    f = get_activation(name)
    z = torch.linspace(-3, 3, 50)
    expected = f.forward(z, torch.empty_like(z))
    assert torch.equal(f.forward(z, z), expected)
