"""agreement: the torch code that `python -m derivations --new` prints, executed, against autograd and 50 digits.

Not covered: expressions of which SymPy's printer makes other functions than log, exp, sqrt, abs, sign and powers.
"""

from __future__ import annotations

import pytest
import torch
from mpmath import log, mp, mpf

from derivations.new.divergence import divergence
from derivations.new.torch_code import torch_code
from derivations.numeric import Comparison, Pair
from methods.directions import full_direction
from methods.measures import MEASURES, Measure

SOURCES = {
    "forward_kl": "sum(mu*log(mu/pi))",
    "reverse_kl": "sum(pi*log(pi/mu))",
    "tv": "1/2*sum(abs(mu-pi))",
    "js": "sum(mu*log(2*mu/(mu+pi)) + pi*log(2*pi/(mu+pi)))/2",
    "bhattacharyya": "-2*log(sum(sqrt(mu*pi)))",
    "alpha": "(1-sum(mu^.3*pi^.7))/.21",
    "two sums": "sum(mu^2/pi) - 1 + sum((mu-pi)^2)*exp(sum((sqrt(mu)-sqrt(pi))^2))",
    "triangular": "sum((mu-pi)^2/(mu+pi))",
    "constant sum": "sum(mu^2/pi)/sum(1) - 1/sum(1)",
}


def executed(source: str) -> Measure:
    space: dict[str, object] = {}
    exec(compile(torch_code(divergence(source)), "<printed>", "exec"), space)
    made = space["MY_MEASURE"]
    assert isinstance(made, Measure) and made.title == source
    return made


def policies(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    logits = (
        torch.randn(16, 9, generator=random, dtype=torch.float64)
        * torch.tensor([0.3, 2.0, 6.0, 1.0]).repeat(4)[:, None]
    )
    moved = logits + torch.randn(16, 9, generator=random, dtype=torch.float64)
    return logits.softmax(-1).to(dtype), moved.to(dtype)


@pytest.mark.parametrize("name", SOURCES)
def test_logit_gradient_is_autograds(name):
    measure = executed(SOURCES[name])
    mu, logits = policies()
    logits.requires_grad_()
    (expected,) = torch.autograd.grad(measure.value(mu, logits.softmax(-1)).sum(), logits)
    torch.testing.assert_close(
        measure.logit_gradient(mu, logits.softmax(-1)).detach(), expected, rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("name", SOURCES)
def test_value_and_direction_are_the_derived_ones(name):
    """At 50 digits: the parsed text, and its finite difference along the step (which certifies what is derived)."""
    measure, given = executed(SOURCES[name]), divergence(SOURCES[name])
    mu, logits = policies()
    pi, sampled = logits.softmax(-1), torch.arange(16) % 9
    value, direction = measure.value(mu, pi), full_direction(measure, mu, pi, sampled)
    with mp.workdps(50):
        for row in range(16):
            m, p = ([mpf(x) for x in table[row].tolist()] for table in (mu, pi))
            assert float(value[row]) == pytest.approx(float(given.number(m, p)), rel=1e-10, abs=1e-13)
            pair = Pair(m, [log(x) for x in p], int(sampled[row]))
            slope = Comparison(50).along(pair, pair.step, lambda policy, m=m: given.number(m, policy))
            assert float(direction[row]) == pytest.approx(float(slope), rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("name", sorted(set(SOURCES) & set(MEASURES)))
def test_it_is_the_shipped_measure(name):
    made, shipped = executed(SOURCES[name]), MEASURES[name]
    mu, logits = policies()
    pi = logits.softmax(-1)
    torch.testing.assert_close(made.value(mu, pi), shipped.value(mu, pi), rtol=1e-10, atol=1e-13)
    assert made.divides == shipped.divides
    torch.testing.assert_close(made.logit_gradient(mu, pi), shipped.logit_gradient(mu, pi), rtol=1e-9, atol=1e-13)


def test_a_quotient_of_masses_is_declared():
    """As the shipped measures do, so that a tail of pure rounding is not divided by."""
    assert {name for name in SOURCES if executed(SOURCES[name]).divides} == {"two sums", "constant sum"}


@pytest.mark.parametrize("name", SOURCES)
def test_zero_probabilities_give_numbers(name):
    """An empty tail class under both policies or one; float32, where TINY squared would underflow."""
    mu = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.5, 0.3, 0.2, 0.0], [1.0, 0.0, 0.0, 0.0]])
    pi = torch.tensor([[0.4, 0.6, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    measure = executed(SOURCES[name])
    assert measure.value(mu, pi).dtype == measure.logit_gradient(mu, pi).dtype == torch.float32
    assert not measure.value(mu, pi).isnan().any() and not measure.logit_gradient(mu, pi).isnan().any()


@pytest.mark.parametrize("name", ["My", "1st", "a-b", ""])
def test_a_name_must_be_an_identifier(name):
    with pytest.raises(ValueError, match="name is"):
        torch_code(divergence(SOURCES["tv"]), name)
