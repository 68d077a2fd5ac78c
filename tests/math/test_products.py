"""Other arithmetic for the large products: near the standard one, and nothing else is touched."""

from __future__ import annotations

import pytest
import torch

from pdadmm.config import Config
from pdadmm.errors import UserError
from pdadmm.math.products import get_products
from pdadmm.math.tiles import TreeSum
from problems import make_engine, make_problem

ERRORS = {"standard": 1e-6, "onednn": 1e-6, "bfloat16": 1e-2}  # bfloat16 has 8 bits: 4e-3 a rounding


@pytest.mark.parametrize(("name", "error"), ERRORS.items())
def test_products_are_right_within_their_precision(name: str, error: float) -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(90, 90, generator=generator) for _ in range(2))
    b, target = torch.randn(90, generator=generator), torch.randn(90, 90, generator=generator)
    products = get_products(name)
    before = torch.get_float32_matmul_precision()
    cases = [
        (products.mm(left, right, torch.empty(90, 90)), left @ right),
        (products.linear(left, right, b, torch.empty(90, 90)), left @ right.t() + b),
        (products.add_mm(target.clone(), left, right, beta=0.5, alpha=2), target / 2 + 2 * left @ right),
        (products.add_mm(torch.full_like(target, torch.nan), left, right, beta=0), left @ right),
    ]
    for found, expected in cases:
        assert float((found - expected).norm() / expected.norm()) < error
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("width", [1, 100, 260])
def test_half_a_gram_matrix_is_that_of_the_whole(width: int) -> None:
    rows = torch.randn(5000, width, dtype=torch.float64)
    total = TreeSum((width, width), torch.float64, torch.device("cpu"))
    for part in rows.split(2500):
        total.add_gram(part)
        total.close_chunk()
    torch.testing.assert_close(total.take().tril(), (rows.t() @ rows).tril())


@pytest.mark.parametrize("name", ["onednn", "bfloat16"])
def test_a_run_follows_the_standard_one_for_a_while(name: str) -> None:
    ends = []
    for products in ("standard", name):
        config = Config(hidden=(40, 40), products=products, grow="off").resolved()
        engine = make_engine(config, make_problem(config))
        engine.begin_stage(0.03)
        for _ in range(3):
            engine.iterate(0.03)
        ends.append(torch.cat([block.state.z for block in engine.blocks], dim=1))
    difference = float((ends[1] - ends[0]).norm() / ends[0].norm())
    assert difference < {"onednn": 1e-4, "bfloat16": 0.05}[name]


@pytest.mark.parametrize(
    "options", [{"products": "bfloat16", "dtype": "float64"}, {"products": "onednn", "device": "cuda"}]
)
def test_what_products_do_not_go_with_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(UserError, match="needs"):
        Config(**options)  # type: ignore[arg-type]
