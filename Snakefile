"""Tether: train, score, compare and report trust-region methods. See README.md; rules are in workflows/rules/."""

from snakemake.utils import min_version

min_version("9.27")


# Another tier or a user's own grid: snakemake --configfile workflows/config/ci.yaml
if not workflow.configfiles:

    configfile: "workflows/config/toy.yaml"


include: "workflows/rules/common.smk"
include: "workflows/rules/world.smk"
include: "workflows/rules/train.smk"
include: "workflows/rules/score.smk"
include: "workflows/rules/derive.smk"
include: "workflows/rules/report.smk"
include: "workflows/rules/tokens.smk"


rule all:
    default_target: True
    input:
        # Named here, though the report needs them too: a deleted intermediate is otherwise not missed.
        expand(
            f"{RESULTS}/runs/{{run}}/{{name}}",
            run=ALL_RUNS,
            name=["metrics.jsonl", "timing.jsonl", "manifest.json", "checkpoints"],
        ),
        expand(f"{RESULTS}/scores/{{run}}{{end}}", run=SCORED_RUNS, end=[".json", ".samples.jsonl"]),
        TABLES,
        rules.curves.output,
        expand(rules.theory.output, figure=THEORY),
        rules.derive.output,
        rules.agree.output,
        rules.variants.output,
        rules.manifest.output,
        f"{RESULTS}/report.html",
        f"{RESULTS}/timings/time.csv",
