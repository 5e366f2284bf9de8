"""The toy world and the supervised warm start, made once per world, model size and warm-start seed."""


rule world:
    input:
        code=program("workflows.world.build"),
    output:
        ensure(
            expand(
                f"{RESULTS}/worlds/{{{{world}}}}/{{name}}",
                name=["train.parquet", "test.parquet", "world.json", "tokenizer/tokenizer.json"],
            ),
            non_empty=True,
        ),
    log:
        f"{RESULTS}/logs/world/{{world}}.log",
    benchmark:
        f"{RESULTS}/timings/world/{{world}}.tsv"
    threads: 1
    params:
        settings=lambda wildcards: json.dumps(config["worlds"][wildcards.world], sort_keys=True),
        folder=folder_of,
    message:
        "{wildcards.world}"
    shell:
        "python -m workflows.world.build --settings {params.settings:q} --output {params.folder:q} 2> {log:q}"


rule warm_start:
    input:
        world=rules.world.output,
        code=program("workflows.world.warm_start"),
    output:
        ensure(
            expand(
                f"{RESULTS}/warm_starts/{{{{model}}}}-{{{{world}}}}-ws{{{{ws}}}}/{{name}}",
                name=["model.safetensors", "config.json", "tokenizer.json", "warm_start.json"],
            ),
            non_empty=True,
        ),
    log:
        f"{RESULTS}/logs/warm_start/{{model}}-{{world}}-ws{{ws}}.log",
    benchmark:
        f"{RESULTS}/timings/warm_start/{{model}}-{{world}}-ws{{ws}}.tsv"
    wildcard_constraints:
        model=r"[A-Za-z0-9_.]+",
        world=r"[A-Za-z0-9_.]+",
        ws=r"\d+",
    threads: 1
    params:
        model=lambda wildcards: json.dumps(config["models"][wildcards.model], sort_keys=True),
        training=lambda wildcards: json.dumps(config["warm_start"], sort_keys=True),
        world=lambda wildcards, input: os.path.dirname(input.world[0]),
        folder=folder_of,
        # Of all tiers: where one has made it, the others take it from there.
        shared="results/shared/warm_starts",
    shell:
        "python -m workflows.world.warm_start --world {params.world:q} --model {params.model:q} "
        "--training {params.training:q} --seed {wildcards.ws} --shared {params.shared} "
        "--output {params.folder:q} 2> {log:q}"
