"""One job per run of the grid: verl trains a model with one method and one seed.

Runs do not share a process: imports are an eighth of a run's time, and a job of its own can be killed, resumed,
re-run and sent to another machine alone.
"""

from pathlib import Path

from workflows.files import remove_empty


rule train:
    input:
        # Model, data, reward and program; not the whole catalogue: a new method's file re-runs nothing.
        training_inputs,
    output:
        metrics=ensure(f"{RESULTS}/runs/{SPACE.wildcard_pattern}/metrics.jsonl", non_empty=True),
        timing=ensure(f"{RESULTS}/runs/{SPACE.wildcard_pattern}/timing.jsonl", non_empty=True),
        manifest=ensure(f"{RESULTS}/runs/{SPACE.wildcard_pattern}/manifest.json", non_empty=True),
        checkpoints=directory(f"{RESULTS}/runs/{SPACE.wildcard_pattern}/checkpoints"),
    log:
        f"{RESULTS}/logs/train/{SPACE.wildcard_pattern}.log",
    benchmark:
        f"{RESULTS}/timings/train/{SPACE.wildcard_pattern}.tsv"
    threads: 1
    resources:
        # A Ray is a dozen processes.
        mem_mb=lambda wildcards: NEEDED_MB[run_of(wildcards).setting.runner],
        runtime=60,
    params:
        # A function of wildcards only: Snakemake does not track one that takes the inputs.
        run=lambda wildcards: json.dumps(run_of(wildcards).dump(), sort_keys=True),
    shell:
        "python -m methods.backend.launch --json {params.run:q} 2> {log:q}"


onsuccess:
    # A training leaves the folders above its own to those that run beside it.
    for name in ("work", "work_tokens"):
        remove_empty(Path(RESULTS, name))
