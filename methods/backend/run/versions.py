"""Start-up guard: names any installed version outside the range this release was tested with."""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement

# Only what the backend touches below its public surface; the full list of pins is in constraints.txt.
TESTED = (
    "verl==0.9.1",
    "torch>=2.13,<2.14",
    "transformers>=5.5.3,<5.11",
    "tensordict>=0.10,<0.11",
    "TransferQueue>=0.1.11,<0.2",
    "hydra-core>=1.3.2,<1.4",
    "omegaconf>=2.3,<2.4",
    "numpy>=2.3,<2.4",
    "lm-eval==0.4.13",
    "snakemake>=9.27,<10",
    "sympy>=1.14,<1.15",
)


def outside_tested_range(tested: tuple[str, ...] = TESTED) -> list[str]:
    """One sentence per package that is missing or outside its tested range; empty when all is well."""
    problems = []
    for line in tested:
        requirement = Requirement(line)
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            problems.append(f"{requirement.name} is not installed (tested: {requirement.specifier})")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{requirement.name} {version} is outside the tested range {requirement.specifier}")
    return problems


def installed(tested: tuple[str, ...] = TESTED) -> dict[str, str]:
    """Version by package name, for a run's manifest."""
    return {Requirement(line).name: metadata.version(Requirement(line).name) for line in tested}
