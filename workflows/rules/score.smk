"""lm-eval scores a cell's checkpoints, the start included, in one process that shares the imports."""


def scored_checkpoints(wildcards):
    """STEP=DIR of the start and of every exported checkpoint."""
    cell = cell_of(wildcards)
    panel = cell.panel
    steps = list(range(panel.export_every, panel.steps, panel.export_every)) if panel.export_every else []
    folder = f"{RESULTS}/runs/{SPACE.wildcard_pattern}/checkpoints".format(**dict(wildcards.items()))
    return [f"0={cell.model}", *(f"{step}={folder}/step_{step}" for step in [*steps, panel.steps])]


def include_path(wildcards):
    path = GRID.source(wildcards.panel).task.get("include_path")
    return f"--include-path {path}" if path else ""


rule score:
    input:
        rules.train.output.checkpoints,
        data=lambda wildcards: cell_of(wildcards).val_files,
        # Not all of eval/: another table re-scores nothing.
        code=sources(
            *(f"eval/{name}.py" for name in ("score", "harness", "sampling", "metrics", "files")),
            "eval/tasks/**/*.py",
            "eval/tasks/**/*.yaml",
        ),
    output:
        scores=ensure(f"{RESULTS}/scores/{SPACE.wildcard_pattern}.json", non_empty=True),
        samples=ensure(f"{RESULTS}/scores/{SPACE.wildcard_pattern}.samples.jsonl", non_empty=True),
    log:
        f"{RESULTS}/logs/score/{SPACE.wildcard_pattern}.log",
    benchmark:
        f"{RESULTS}/timings/score/{SPACE.wildcard_pattern}.tsv"
    threads: 1
    resources:
        mem_mb=3000,
        runtime=60,
    params:
        **config["scoring"],
        pass_at=[k for k in (1, 4, 16) if k <= config["scoring"]["repeats"]],
        checkpoints=lambda wildcards: [f"--checkpoint={item}" for item in scored_checkpoints(wildcards)],
        task=lambda wildcards: GRID.source(wildcards.panel).task["name"],
        include=include_path,
        tokens=lambda wildcards: cell_of(wildcards).panel.response_length,
    shell:
        "echo '[score] {wildcards.panel} {wildcards.method} seed {wildcards.seed}' && "
        "python -m eval.score {params.checkpoints:q} --data {input.data:q} --task {params.task} {params.include} "
        "--repeats {params.repeats} --pass-at {params.pass_at} --problems {params.problems} --seed {params.seed} --batch-size {params.batch_size} "
        "--max-new-tokens {params.tokens} --output {output.scores:q} --samples {output.samples:q} "
        "--timing {RESULTS}/timings/score/{wildcards.panel}-{wildcards.method}-{wildcards.seed}.json > {log:q} 2>&1"
