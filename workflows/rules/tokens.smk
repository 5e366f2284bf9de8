"""The token study: runs that record tokens around optimiser steps, then tables, figures and verdicts.

snakemake tokens        not part of the default target, which it would double in time
"""


localrules:
    token_tables,
    token_figure,
    token_page,
    token_time,
    tokens,


TOKEN_SPACE = Paramspace(pd.DataFrame(GRID.keys("token_grid"), columns=["setting", "variant", "seed"]))
TOKEN_RECORDS = LISTS["records"]
TOKEN_TABLES = expand(
    f"{RESULTS}/tables/tokens_{{name}}.csv", name=["seeds", "summary", "sweep", "causes", "changes", "open"]
)

# Figure: the table that it draws.
TOKEN_FIGURES = {
    "unsafe_keep": "tokens_seeds",
    "changes": "tokens_changes",
    "k": "tokens_sweep",
    "parts": "tokens_summary",
    "open": "tokens_open",
    "staleness": "tokens_seeds",
    "mismatch": "mismatch_profile",
}
# The page shows the short tables; these two are long, and drawn.
TOKEN_SHOWN = [path for path in TOKEN_TABLES if not path.endswith(("tokens_sweep.csv", "tokens_changes.csv"))]
TOKEN_SETTINGS = {run.setting_name: config["settings"][run.setting_name] for run in TOKEN_RUNS.values()}


use rule train as record with:
    input:
        lambda wildcards: training_inputs(wildcards, TOKEN_RUNS),
    output:
        ensure(f"{RESULTS}/tokens/{SPACE.wildcard_pattern}/tokens.parquet", non_empty=True),
    log:
        f"{RESULTS}/logs/record/{SPACE.wildcard_pattern}.log",
    benchmark:
        f"{RESULTS}/timings/record/{SPACE.wildcard_pattern}.tsv"
    resources:
        mem_mb=record_memory,
        runtime=60,
    params:
        run=lambda wildcards: json.dumps(run_of(wildcards, TOKEN_RUNS).dump(), sort_keys=True),


rule token_tables:
    input:
        TOKEN_RECORDS,
        records=f"{RESULTS}/lists/records.txt",
        code=program("eval.tokens.__main__"),
    output:
        ensure(TOKEN_TABLES, non_empty=True),
        verdicts=ensure(f"{RESULTS}/verdicts/tokens.csv", non_empty=True),
    log:
        f"{RESULTS}/logs/token_tables.log",
    params:
        tables=folder_of,
    shell:
        "python -m eval.tokens study @{input.records:q} --tables {params.tables:q} "
        "--verdicts {output.verdicts:q} 2> {log:q}"


rule mismatch:
    input:
        # Of the first setting: model and data are the same for all of a tier's token settings.
        mismatch_inputs,
        code=program("workflows.tools.mismatch.command"),
    output:
        ensure(f"{RESULTS}/tables/mismatch.csv", non_empty=True),
        ensure(f"{RESULTS}/tables/mismatch_profile.csv", non_empty=True),
    log:
        f"{RESULTS}/logs/mismatch.log",
    benchmark:
        f"{RESULTS}/timings/mismatch.tsv"
    threads: 1
    resources:
        mem_mb=6000,
        runtime=60,
    params:
        folder=folder_of,
        arguments=mismatch_arguments,
    shell:
        "python -m workflows mismatch --output {params.folder:q} {params.arguments:q} > {log:q} 2>&1"


rule token_figure:
    input:
        table=lambda wildcards: f"{RESULTS}/tables/{TOKEN_FIGURES[wildcards.name]}.csv",
        code=lambda wildcards: program(f"eval.tokens.figures.{wildcards.name}"),
    output:
        report(
            ensure(f"{RESULTS}/figures/token_{{name}}.svg", non_empty=True),
            caption="../report/token_{name}.rst",
            category="Token study",
        ),
    log:
        f"{RESULTS}/logs/token_{{name}}.log",
    wildcard_constraints:
        name="|".join(TOKEN_FIGURES),
    shell:
        "python -m eval.tokens.figures.{wildcards.name} --table {input.table:q} --output {output:q} > {log:q} 2>&1"


rule token_page:
    input:
        verdicts=rules.token_tables.output.verdicts,
        tables=[*TOKEN_SHOWN, f"{RESULTS}/tables/mismatch.csv"],
        figures=expand(rules.token_figure.output, name=TOKEN_FIGURES),
        # For the number of parameters.
        models=sorted({path for run in TOKEN_RUNS.values() for path in model_files(run)}),
        code=program("eval.tokens.page"),
    output:
        ensure(f"{RESULTS}/tokens.html", non_empty=True),
    log:
        f"{RESULTS}/logs/token_page.log",
    params:
        title=lambda wildcards: f"The token study: {config['title']}",
        settings=lambda wildcards: json.dumps(
            {"settings": TOKEN_SETTINGS, "token_grid": config["token_grid"]}, sort_keys=True
        ),
        toy="--toy" if all("world" in setting for setting in TOKEN_SETTINGS.values()) else "",
        models=sorted({run.model for run in TOKEN_RUNS.values()}),
    shell:
        "python -m eval.tokens.page --title {params.title:q} --verdicts {input.verdicts:q} --table {input.tables:q} "
        "--figure {input.figures:q} --settings {params.settings:q} --model {params.models:q} {params.toy} "
        "--output {output:q} > {log:q} 2>&1"


rule token_time:
    input:
        # Written by the runs beside their records; no output that Snakemake would follow.
        page=rules.token_page.output,
        files=f"{RESULTS}/lists/record_timings.txt",
        code=program("workflows.scripts.time_table"),
    output:
        ensure(f"{RESULTS}/timings/tokens.csv", non_empty=True),
    log:
        f"{RESULTS}/logs/token_time.log",
    params:
        folder=lambda wildcards, output: f"{folder_of(wildcards, output)}/record",
    shell:
        "python -m workflows.scripts.time_table --timings {params.folder:q} --files @{input.files:q} --runs "
        "--output {output:q} 2> {log:q}"


rule tokens:
    input:
        # Named here, though the tables need them too: a deleted intermediate is otherwise not missed.
        TOKEN_RECORDS,
        TOKEN_TABLES,
        rules.token_tables.output.verdicts,
        rules.mismatch.output,
        rules.token_page.input.figures,
        rules.token_page.output,
        rules.token_time.output,
