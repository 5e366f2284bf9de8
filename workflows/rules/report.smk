"""Tables, the figure and the report. All are byte-equal between runs; timings have files of their own."""


localrules:
    lists,
    variants,
    manifest,
    tables,
    curves,
    report,
    time,


# In the order of the configuration.
SETTING_NAMES = [name for name in config["settings"] if name in {key[0] for key in GRID.keys()}]
SETTINGS = [config["settings"][name] for name in SETTING_NAMES]
TOYS = {key[0] for key in GRID.keys() if "world" in config["settings"][key[0]]}
MADE = [f"world/{name}" for name in sorted({config["settings"][setting]["world"] for setting in TOYS})]
MADE += [f"warm_start/{name}" for name in sorted(map(GRID.warm_start, TOYS))]
TABLES = expand(f"{RESULTS}/tables/{{name}}.csv", name=["scores", "curves", "summary"])


# What grows with the grid reaches a program by a file, one argument a line: a shell's command has a limit of 128 kB.
LISTS = {
    "runs": [f"{RESULTS}/runs/{run}" for run in ALL_RUNS],
    "scores": [f"{RESULTS}/scores/{run}.json" for run in SCORED_RUNS],
    "manifests": [f"{RESULTS}/runs/{run}/manifest.json" for run in ALL_RUNS],
    "config": [json.dumps(config, sort_keys=True)],
    "timings": timings("derive", *dict.fromkeys(MADE), train=ALL_RUNS, score=SCORED_RUNS),
    "records": [f"{RESULTS}/tokens/{run}/tokens.parquet" for run in TOKEN_RUNS],
    "record_timings": timings(record=TOKEN_RUNS),
}


rule lists:
    output:
        # Empty where nothing is scored, or no tokens are recorded.
        f"{RESULTS}/lists/{{list}}.txt",
    log:
        f"{RESULTS}/logs/lists/{{list}}.log",
    wildcard_constraints:
        list="|".join(LISTS),
    params:
        text=lambda wildcards: "".join(f"{line}\n" for line in LISTS[wildcards.list]),
    script:
        "../scripts/write.py"


rule variants:
    output:
        ensure(f"{RESULTS}/variants.json", non_empty=True),
    log:
        f"{RESULTS}/logs/variants.log",
    params:
        # In the order of the configuration, which is the order of colours.
        text=lambda wildcards: json.dumps(variants()) + "\n",
    script:
        "../scripts/write.py"


rule manifest:
    input:
        LISTS["manifests"],
        runs=f"{RESULTS}/lists/manifests.txt",
        config=f"{RESULTS}/lists/config.txt",
        code=program("workflows.scripts.manifest"),
    output:
        ensure(f"{RESULTS}/manifest.json", non_empty=True),
    log:
        f"{RESULTS}/logs/manifest.log",
    shell:
        "python -m workflows.scripts.manifest @{input.runs:q} --config {input.config:q} "
        "--output {output:q} > {log:q} 2>&1"


rule tables:
    input:
        [f"{run}/{name}" for run in LISTS["runs"] for name in ("metrics.jsonl", "manifest.json")],
        LISTS["scores"],
        runs=f"{RESULTS}/lists/runs.txt",
        scores=f"{RESULTS}/lists/scores.txt",
        code=program("eval.tables"),
    output:
        ensure(TABLES, non_empty=True),
    log:
        f"{RESULTS}/logs/tables.log",
    params:
        folder=folder_of,
        reference=lambda wildcards: config["reference"],
        metric=f"avg@{config['scoring']['repeats']}",
    shell:
        "(python -m eval.tables scores --scores @{input.scores:q} --output {params.folder}/scores.csv && "
        "python -m eval.tables curves --runs @{input.runs:q} --scores @{input.scores:q} "
        "--output {params.folder}/curves.csv && "
        "python -m eval.tables summary --runs @{input.runs:q} --scores @{input.scores:q} "
        "--reference {params.reference:q} --metric {params.metric} --output {params.folder}/summary.csv) > {log:q} 2>&1"


rule curves:
    input:
        curves=f"{RESULTS}/tables/curves.csv",
        variants=rules.variants.output,
        code=program("eval.figures.curves"),
    output:
        report(
            ensure(f"{RESULTS}/figures/curves.svg", non_empty=True),
            caption="../report/curves.rst",
            category="Training",
        ),
    log:
        f"{RESULTS}/logs/curves.log",
    params:
        settings=SETTING_NAMES,
    shell:
        "python -m eval.figures.curves --curves {input.curves:q} --variants {input.variants:q} "
        "--settings {params.settings:q} --output {output:q} > {log:q} 2>&1"


rule report:
    input:
        tables=TABLES,
        figure=rules.curves.output,
        theory=expand(rules.theory.output, figure=THEORY),
        variants=rules.variants.output,
        derivations=rules.derive.output.json,
        page=rules.derive.output.page,
        agreement=rules.agree.output.json,
        manifest=rules.manifest.output,
        # For the number of parameters.
        models=sorted({path for run in RUNS.values() for path in model_files(run)}),
        code=program("eval.report"),
    output:
        ensure(f"{RESULTS}/report.html", non_empty=True),
    log:
        f"{RESULTS}/logs/report.log",
    params:
        title=lambda wildcards: config["title"],
        page=os.path.relpath(rules.derive.output.page, RESULTS),
        settings=SETTING_NAMES,
        models=sorted({run.model for run in RUNS.values()}),
        # The default limits are the toy world's; they would be false on another model or task.
        limits="" if all("world" in setting for setting in SETTINGS) else "--limits workflows/report/own_limits.json",
    shell:
        "python -m eval.report --title {params.title:q} --figure {input.figure:q} --table {input.tables:q} "
        "--variants {input.variants:q} --derivations {input.derivations:q} --derivation-figure {input.theory:q} "
        "--derivation-page {params.page:q} --agreement {input.agreement:q} --manifest {input.manifest:q} "
        "--settings {params.settings:q} --model {params.models:q} {params.limits} "
        "--output {output:q} > {log:q} 2>&1"


rule time:
    input:
        report=rules.report.output,
        # Of this grid: the folder may hold those of methods that are no longer in it.
        files=f"{RESULTS}/lists/timings.txt",
        code=program("workflows.scripts.time_table"),
    output:
        ensure(f"{RESULTS}/timings/time.csv", non_empty=True),
    log:
        f"{RESULTS}/logs/time.log",
    params:
        folder=folder_of,
    shell:
        "python -m workflows.scripts.time_table --timings {params.folder:q} --files @{input.files:q} "
        "--output {output:q} 2> {log:q}"
