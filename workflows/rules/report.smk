"""Tables, the figure and the report. All are byte-equal between runs; timings have files of their own."""


localrules:
    labels,
    manifest,
    tables,
    curves,
    report,
    time,


PANELS = [config["panels"][name] for name in sorted({key[0] for key in GRID.keys()})]
TABLES = expand(f"{RESULTS}/tables/{{name}}.csv", name=["scores", "curves", "summary"])


rule labels:
    output:
        f"{RESULTS}/labels.json",
    log:
        f"{RESULTS}/logs/labels.log",
    conda:
        "../envs/tether.yaml"
    params:
        # In the order of the configuration, which is the order of colours.
        text=lambda wildcards: json.dumps(labels()),
    shell:
        "printf '%s\\n' {params.text:q} > {output:q} 2> {log:q}"


rule manifest:
    input:
        runs=expand(f"{RESULTS}/runs/{{cell}}/manifest.json", cell=ALL_CELLS),
        code=program("workflows.scripts.manifest"),
    output:
        f"{RESULTS}/manifest.json",
    log:
        f"{RESULTS}/logs/manifest.log",
    conda:
        "../envs/tether.yaml"
    params:
        config=lambda wildcards: json.dumps(config, sort_keys=True),
    shell:
        "python -m workflows.scripts.manifest --config {params.config:q} --output {output:q} {input.runs:q} > {log:q} 2>&1"


rule tables:
    input:
        runs=expand(f"{RESULTS}/runs/{{cell}}/{{name}}", cell=ALL_CELLS, name=["metrics.jsonl", "manifest.json"]),
        scores=expand(f"{RESULTS}/scores/{{cell}}.json", cell=SCORED_CELLS),
        code=program("eval.tables"),
    output:
        TABLES,
    log:
        f"{RESULTS}/logs/tables.log",
    conda:
        "../envs/tether.yaml"
    params:
        runs=expand(f"{RESULTS}/runs/{{cell}}", cell=ALL_CELLS),
        folder=folder_of,
        reference=config["reference"],
        metric=f"avg@{config['scoring']['repeats']}",
    shell:
        "(python -m eval.tables scores --scores {input.scores:q} --output {params.folder}/scores.csv && "
        "python -m eval.tables curves --runs {params.runs:q} --scores {input.scores:q} --output {params.folder}/curves.csv && "
        "python -m eval.tables summary --runs {params.runs:q} --scores {input.scores:q} --reference {params.reference} --metric {params.metric} "
        "--output {params.folder}/summary.csv) > {log:q} 2>&1"


rule curves:
    input:
        curves=f"{RESULTS}/tables/curves.csv",
        labels=rules.labels.output,
        code=program("eval.figures.curves"),
    output:
        report(f"{RESULTS}/figures/curves.svg", caption="../report/curves.rst", category="Training"),
    log:
        f"{RESULTS}/logs/curves.log",
    conda:
        "../envs/tether.yaml"
    shell:
        "python -m eval.figures.curves --curves {input.curves:q} --labels {input.labels:q} --output {output:q} > {log:q} 2>&1"


rule report:
    input:
        tables=TABLES,
        figure=rules.curves.output,
        theory=expand(rules.theory.output, figure=THEORY),
        labels=rules.labels.output,
        derivations=rules.derive.output.json,
        page=rules.derive.output.page,
        agreement=rules.agree.output.json,
        manifest=rules.manifest.output,
        code=program("eval.report"),
    output:
        ensure(f"{RESULTS}/report.html", non_empty=True),
    log:
        f"{RESULTS}/logs/report.log",
    conda:
        "../envs/tether.yaml"
    params:
        title=lambda wildcards: config["title"],
        page=os.path.relpath(rules.derive.output.page, RESULTS),
        # The default limits are the toy world's; they would be false on another model or task.
        limits="" if all("world" in panel for panel in PANELS) else "--limits workflows/report/own_limits.json",
    shell:
        "python -m eval.report --title {params.title:q} --figure {input.figure:q} --table {input.tables:q} "
        "--labels {input.labels:q} --derivations {input.derivations:q} --derivation-figure {input.theory:q} --derivation-page {params.page:q} --agreement {input.agreement:q} --manifest {input.manifest:q} {params.limits} "
        "--output {output:q} > {log:q} 2>&1"


rule time:
    input:
        report=rules.report.output,
        code=program("workflows.scripts.time_table"),
    output:
        f"{RESULTS}/timings/time.csv",
    log:
        f"{RESULTS}/logs/time.log",
    conda:
        "../envs/tether.yaml"
    params:
        folder=folder_of,
    shell:
        "python -m workflows.scripts.time_table --timings {params.folder:q} --output {output:q} 2> {log:q}"
