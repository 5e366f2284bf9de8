"""Tether: train, score, compare and report trust-region methods. See README.md; rules are in workflows/rules/."""

from snakemake.utils import min_version

min_version("9.27")


# Another tier or a user's own grid: snakemake --configfile workflows/config/ci.yaml
if "tier" not in config:

    configfile: "workflows/config/toy.yaml"


include: "workflows/rules/common.smk"
include: "workflows/rules/world.smk"
include: "workflows/rules/train.smk"
include: "workflows/rules/score.smk"
include: "workflows/rules/derive.smk"
include: "workflows/rules/report.smk"


rule all:
    default_target: True
    input:
        f"{RESULTS}/report.html",
        f"{RESULTS}/timings/time.csv",
