"""lm-eval scores a run's checkpoints, the start included, in one process that shares the imports."""


rule score:
    input:
        rules.train.output.checkpoints,
        data=lambda wildcards: run_of(wildcards).val_files,
        start=lambda wildcards: model_files(run_of(wildcards)),
        task=task_files,
        # Not all of eval/: another table re-scores nothing.
        code=[*program("eval.score", "eval.tasks.sort.utils"), *sources("eval/tasks/**/*.yaml")],
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
        timing=f"{RESULTS}/timings/score/{SPACE.wildcard_pattern}.json",
        pass_at=[k for k in (1, 4, 16) if k <= config["scoring"]["repeats"]],
        checkpoints=lambda wildcards: [f"--checkpoint={item}" for item in scored_checkpoints(wildcards)],
        task=lambda wildcards: GRID.source(wildcards.setting).task["name"],
        include=include_path,
        sampling=[
            f"--{name.replace('_', '-')}={config['scoring'][name]}"
            for name in ("temperature", "top_p")
            if name in config["scoring"]
        ],
        quantise=trained_quantisation,
        tokens=lambda wildcards: run_of(wildcards).setting.response_length,
    shell:
        "python -m eval.score {params.checkpoints:q} --data {input.data:q} --task {params.task:q} {params.include:q} "
        "--repeats {params.repeats} --pass-at {params.pass_at} --problems {params.problems} --seed {params.seed} "
        "--batch-size {params.batch_size} --max-new-tokens {params.tokens} --quantise {params.quantise} "
        "{params.sampling:q} --output {output.scores:q} --samples {output.samples:q} --timing {params.timing:q} "
        "> {log:q} 2>&1"
