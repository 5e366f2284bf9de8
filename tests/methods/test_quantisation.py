"""definition, gradient and property: fake quantisation, and which modules of a model it covers.

Not covered: models of other families than Qwen3 and Qwen3-MoE, and sharded weights (tests/backend/test_precision.py).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from methods.precision.quantisation import (
    SCHEMES,
    Scheme,
    fake_quantise,
    linear,
    quantise,
    quantise_model,
    quantised_modules,
    scheme_of,
)

FP8, INT8 = SCHEMES["fp8"], SCHEMES["int8"]
# Codes in float32: quantisation that loses nothing but rounding, to compare forwards with the unquantised ones.
LOSSLESS = Scheme("lossless", 1.0, torch.float32)
SIZES: dict[str, Any] = {"vocab_size": 20, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": False}


def rows(seed: int = 0, n: int = 64, width: int = 48) -> Tensor:
    """Slices of very different sizes."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=random) * torch.logspace(-6, 6, n).unsqueeze(1)


def dense() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**SIZES))


def mixture() -> Qwen3MoeForCausalLM:
    torch.manual_seed(0)
    more = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, **more))


def e4m3_grid() -> Tensor:
    """All finite values >= 0 of the format from its bits: exponent bias 7, 3 mantissa bits, 0x7f is NaN."""
    values = []
    for code in range(0x7F):
        exponent, mantissa = code >> 3, code & 7
        values.append(mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    return torch.tensor(values)


def test_fp8_by_hand() -> None:
    """The row's largest value is Q, so that s = 1: 3.3 lies between 3.25 and 3.5, 0.1 next to 13/128, 17 is a tie."""
    x = torch.tensor([[448.0, 1.0, -3.3, 0.1, 17.0, 19.0, 2.0**-10, 0.0]])
    assert fake_quantise(x, FP8).tolist() == [[448.0, 1.0, -3.25, 0.1015625, 16.0, 20.0, 0.0, 0.0]]


def test_int8_by_hand() -> None:
    """s = 1 again; halves go to the even neighbour; the most negative code is -127."""
    x = torch.tensor([[-127.0, 0.5, 1.5, -2.5, 3.49, 0.0]])
    assert fake_quantise(x, INT8).tolist() == [[-127.0, 0.0, 2.0, -2.0, 3.0, 0.0]]


def test_fp8_takes_the_nearest_value_of_the_format() -> None:
    """Against the grid built from the format's bits, not against torch's cast."""
    x = rows()
    scales = x.abs().amax(-1, keepdim=True) / 448
    codes = (fake_quantise(x, FP8) / scales).abs()
    grid = e4m3_grid()
    assert grid.max() == 448 and len(grid) == 127
    nearest = ((x / scales).abs().unsqueeze(-1) - grid).abs().amin(-1)
    assert (codes.unsqueeze(-1) - grid).abs().amin(-1).max() < 1e-4
    assert torch.allclose((codes - (x / scales).abs()).abs(), nearest, atol=1e-4)


def test_fp8_is_torchs_cast_of_the_scaled_value() -> None:
    x = rows(1)
    scales = x.abs().amax(-1, keepdim=True) / 448
    expected = (x / scales).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scales
    assert torch.equal(fake_quantise(x, FP8), expected)


@pytest.mark.parametrize(("scheme", "bound"), [(FP8, 2**-4), (INT8, 1 / 254)])
def test_each_slice_has_a_scale_of_its_own(scheme: Scheme, bound: float) -> None:
    """The error is bounded by the slice's largest value, twelve orders of magnitude apart; one scale would lose all."""
    x = rows(2)
    error = (fake_quantise(x, scheme) - x).abs().amax(-1) / x.abs().amax(-1)
    assert (error <= bound * (1 + 1e-5)).all()
    assert quantise(x, scheme)[1].shape == (64, 1)


@pytest.mark.parametrize("scheme", [FP8, INT8])
def test_scales_are_never_zero_and_nothing_is_hidden(scheme: Scheme) -> None:
    """Zeros stay zeros, a slice too small for a scale loses its values but not its size; NaN and inf come out."""
    tiny = torch.finfo(torch.float32).smallest_normal * 2**-23
    x = torch.tensor([[0.0, 0.0], [tiny, -tiny], [1.0, torch.nan], [1.0, torch.inf]])
    out, scales = fake_quantise(x, scheme), quantise(x, scheme)[1]
    assert (scales != 0).all()
    assert out[0].tolist() == [0, 0] and (out[1].abs() <= 2 * tiny).all()
    assert out[2].isnan().any() and not out[3].isfinite().all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(["fp8", "int8"]), st.sampled_from(["float32", "bfloat16", "float16"]))
def test_idempotent(seed: int, name: str, dtype: str) -> None:
    """q(q(x)) = q(x): the same codes; values equal up to one rounding of the scale, which float32 may need."""
    scheme = SCHEMES[name]
    x = (torch.randn(8, 32, generator=torch.Generator().manual_seed(seed)) * 3).to(getattr(torch, dtype))
    once = fake_quantise(x, scheme).to(x.dtype)
    twice = fake_quantise(once, scheme).to(x.dtype)
    assert torch.equal(quantise(x, scheme)[0].float(), quantise(once, scheme)[0].float())
    assert torch.allclose(once.float(), twice.float(), rtol=2**-22, atol=0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(-20, 20), st.sampled_from(["fp8", "int8"]))
def test_a_power_of_two_changes_nothing_but_the_size(seed: int, power: int, name: str) -> None:
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(fake_quantise(x * 2.0**power, SCHEMES[name]), fake_quantise(x, SCHEMES[name]) * 2.0**power)


@pytest.mark.parametrize("scheme", [FP8, INT8])
def test_the_gradient_is_straight_through(scheme: Scheme) -> None:
    """dy/dx = q(W) and dy/dW = q(x) exactly, db the sum: no derivative of rounding, none of the scale."""
    x, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((5, 8), (3, 8), (3,)))
    upstream = torch.randn(5, 3)
    linear(x, weight, bias, scheme).backward(upstream)
    assert x.grad is not None and weight.grad is not None and bias.grad is not None
    assert torch.equal(x.grad, upstream @ fake_quantise(weight, scheme).detach())
    assert torch.allclose(weight.grad, upstream.T @ fake_quantise(x, scheme).detach(), rtol=1e-6)
    assert torch.allclose(bias.grad, upstream.sum(0), rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_are_summed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    """Also under autocast, which casts the operands of every other linear to its dtype."""
    x, weight = torch.randn(16, 64).to(dtype), torch.randn(8, 64).to(dtype)
    expected = (fake_quantise(x, FP8).double() @ fake_quantise(weight, FP8).double().T).to(dtype)
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = linear(x, weight, None, FP8)
        assert out.dtype == dtype
        # Sums that fall on a rounding boundary may differ by an ulp; a sum in the narrow dtype differs nearly always.
        assert (out == expected).float().mean() > 0.97


def test_which_modules_are_covered() -> None:
    """All projections and fused experts; not the head, embeddings, norms, or the router."""
    attention = [f"self_attn.{name}_proj" for name in "qkvo"]
    plain, moe = dense(), mixture()
    names = quantise_model(plain, "fp8")
    mlp = [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    assert sorted(names) == sorted(f"model.layers.{i}.{part}" for i in range(2) for part in attention + mlp)
    assert quantised_modules(plain) == dict.fromkeys(names, "fp8") and scheme_of(plain) == "fp8"
    names = quantise_model(moe, "int8")
    assert sorted(names) == sorted(f"model.layers.{i}.{part}" for i in range(2) for part in [*attention, "mlp.experts"])
    assert scheme_of(dense()) == "none"


@pytest.mark.parametrize("make", [dense, mixture])
def test_no_weight_is_changed(make: Any) -> None:
    """Same parameter objects under the same names with the same bits, before and after a forward and backward."""
    model = make()
    before = dict(model.named_parameters())
    values = {name: parameter.detach().clone() for name, parameter in before.items()}
    quantise_model(model, "fp8")
    model(input_ids=torch.arange(12).view(2, 6)).logits.sum().backward()
    after = dict(model.named_parameters())
    assert list(after) == list(before) == list(values)
    for name, parameter in after.items():
        assert parameter is before[name] and torch.equal(parameter.detach(), values[name])
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    assert list(make().state_dict()) == list(model.state_dict())


@pytest.mark.parametrize("make", [dense, mixture])
def test_a_quantised_model_computes_something_else(make: Any) -> None:
    """fp8 moves the logits more than int8, both by little; the router's own product is exact in both."""
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad():
        exact = make()(input_ids=ids).logits
        gaps = {}
        for scheme in SCHEMES:
            model = make()
            quantise_model(model, scheme)
            gaps[scheme] = float((model(input_ids=ids).logits - exact).abs().mean() / exact.abs().mean())
    assert 1e-4 < gaps["int8"] < gaps["fp8"] < 0.2


def test_experts_compute_what_transformers_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With lossless codes the whole quantised mixture equals transformers' own, gradients included."""
    monkeypatch.setitem(SCHEMES, "lossless", LOSSLESS)
    ids = torch.arange(12).view(2, 6)
    exact, ours = mixture(), mixture()
    quantise_model(ours, "lossless")
    for model in (exact, ours):
        model(input_ids=ids).logits.square().sum().backward()
    with torch.no_grad():
        assert torch.allclose(exact(input_ids=ids).logits, ours(input_ids=ids).logits, atol=1e-5)
    theirs = dict(exact.named_parameters())
    for name, parameter in ours.named_parameters():
        assert torch.allclose(parameter.grad, theirs[name].grad, rtol=1e-3, atol=1e-4), name


def test_experts_by_hand() -> None:
    """One token, its experts' W8A8 outputs added with the router's weights."""
    model = mixture()
    experts = model.model.layers[0].mlp.experts
    x = torch.randn(3, 16)
    chosen, weights = torch.tensor([[0, 2], [3, 1], [2, 0]]), torch.tensor([[0.75, 0.25], [0.5, 0.5], [1.0, 0.0]])
    quantise_model(model, "fp8")
    out = experts(x, chosen, weights)
    for token in range(3):
        expected = torch.zeros(16)
        for expert, weight in zip(chosen[token].tolist(), weights[token], strict=True):
            gate, up = linear(x[token], experts.gate_up_proj[expert], None, FP8).chunk(2)
            expected += weight * linear(nn.functional.silu(gate) * up, experts.down_proj[expert], None, FP8)
        assert torch.allclose(out[token], expected, atol=1e-7)


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv1d(2, 2, 3)
        self.outer = nn.Linear(2, 2)


def test_what_cannot_be_covered_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scheme 'fp4': allowed are fp8, int8"):
        quantise_model(dense(), "fp4")
    with pytest.raises(ValueError, match=r"inner \(Conv1d\) has weights of more than two axes"):
        quantise_model(Convolution(), "fp8")
    with pytest.raises(ValueError, match=r"no module that quantisation covers"):
        quantise_model(nn.LayerNorm(3), "fp8")
    model = dense()
    quantise_model(model, "fp8")
    with pytest.raises(ValueError, match=r"quantised already \(fp8\), asked for int8"):
        quantise_model(model, "int8")


def test_a_model_of_two_schemes_names_both() -> None:
    parts = [torch.nn.Sequential(torch.nn.Linear(8, 8)) for _ in range(2)]
    for part, scheme in zip(parts, ("int8", "fp8"), strict=True):
        quantise_model(part, scheme)
    assert scheme_of(torch.nn.ModuleList(parts)) == "fp8+int8"
