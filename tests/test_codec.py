"""What the wire does to numbers."""

from __future__ import annotations

import pytest
import torch

from pdadmm.engine.codec import NAMES, Int8, get_codec


@pytest.mark.parametrize(("name", "error"), [("bfloat16", 2**-8), ("int8", 1 / 127)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_round_trip_is_within_the_codecs_precision(name: str, error: float, dtype: torch.dtype) -> None:
    codec = get_codec(name, seed=0)
    assert codec is not None
    values = torch.randn(50, 20, dtype=dtype) * torch.logspace(-3, 3, 50, dtype=dtype)[:, None]
    values[7] = 0
    wire = codec.wire(50, 20, values.device)
    codec.encode(values, wire)
    back = codec.decode(wire, torch.empty_like(values))
    largest = values.abs().amax(1, keepdim=True)
    assert bool(((back - values).abs() <= error * 1.01 * largest).all())
    assert not back[7].any()


def test_a_value_as_sent_is_sent_unchanged_by_bfloat16() -> None:
    codec = get_codec("bfloat16", seed=0)
    assert codec is not None
    values = torch.randn(10, 10)
    wire = codec.wire(10, 10, values.device)
    codec.encode(values, wire)
    once = codec.decode(wire, torch.empty_like(values)).clone()
    codec.encode(once, wire)
    assert torch.equal(codec.decode(wire, torch.empty_like(values)), once)


def test_int8_is_right_on_average() -> None:
    codec = Int8(seed=1)
    values = torch.linspace(-1, 1, 31)[None].repeat(4000, 1)
    wire = codec.wire(4000, 31, values.device)
    codec.encode(values, wire)
    mean = codec.decode(wire, torch.empty_like(values)).mean(0)
    assert float((mean - values[0]).abs().max()) < 4e-4


def test_exact_needs_no_codec() -> None:
    assert get_codec("exact", seed=0) is None
    assert NAMES == ("exact", "bfloat16", "int8")
