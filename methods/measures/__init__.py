"""Divergences between mu (rollout) and pi (current), and what a logit step does to them.

Each measure works on the last axis of two probability tensors: the whole vocabulary, or a support with one tail class
(`reduced`); `binary` holds their two-outcome forms for the sampled token. A measure is one entry of a table.
"""

from methods.measures.algebraic import CHI2_NEYMAN, CHI2_PEARSON, HELLINGER2, L2, TV
from methods.measures.binary import BINARY_MEASURES, binary_kl, binary_tv, binary_value
from methods.measures.logarithmic import FORWARD_KL, JEFFREYS, JS, REVERSE_KL
from methods.measures.measure import TINY, Measure
from methods.measures.reduced import reduced_classes, reduced_value

MEASURES = {
    measure.name: measure
    for measure in (FORWARD_KL, REVERSE_KL, TV, JEFFREYS, JS, HELLINGER2, CHI2_PEARSON, CHI2_NEYMAN, L2)
}

__all__ = [
    "BINARY_MEASURES",
    "CHI2_NEYMAN",
    "CHI2_PEARSON",
    "FORWARD_KL",
    "HELLINGER2",
    "JEFFREYS",
    "JS",
    "L2",
    "MEASURES",
    "REVERSE_KL",
    "TINY",
    "TV",
    "Measure",
    "binary_kl",
    "binary_tv",
    "binary_value",
    "reduced_classes",
    "reduced_value",
]
