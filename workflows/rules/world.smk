"""The toy world and the supervised warm start, made once per world, model size and warm-start seed."""


rule world:
    input:
        code=program("workflows.world.build"),
    output:
        expand(f"{RESULTS}/worlds/{{{{world}}}}/{{name}}", name=["train.parquet", "test.parquet", "world.json"]),
        f"{RESULTS}/worlds/{{world}}/tokenizer/tokenizer.json",
    log:
        f"{RESULTS}/logs/world/{{world}}.log",
    benchmark:
        f"{RESULTS}/timings/world/{{world}}.tsv"
    conda:
        "../envs/tether.yaml"
    threads: 1
    params:
        settings=lambda wildcards: json.dumps(config["worlds"][wildcards.world], sort_keys=True),
        folder=folder_of,
    shell:
        "echo '[world] {wildcards.world}' && "
        "python -m workflows.world.build --settings {params.settings:q} --output {params.folder:q} 2> {log:q}"


rule warm_start:
    input:
        world=rules.world.output,
        code=program("workflows.world.warm_start"),
    output:
        expand(
            f"{RESULTS}/warm_starts/{{{{model}}}}-{{{{world}}}}-ws{{{{ws}}}}/{{name}}",
            name=["model.safetensors", "config.json", "tokenizer.json", "warm_start.json"],
        ),
    log:
        f"{RESULTS}/logs/warm_start/{{model}}-{{world}}-ws{{ws}}.log",
    benchmark:
        f"{RESULTS}/timings/warm_start/{{model}}-{{world}}-ws{{ws}}.tsv"
    wildcard_constraints:
        model=r"[A-Za-z0-9_.]+",
        world=r"[A-Za-z0-9_.]+",
        ws=r"\d+",
    conda:
        "../envs/tether.yaml"
    threads: 1
    params:
        model=lambda wildcards: json.dumps(config["models"][wildcards.model], sort_keys=True),
        training=json.dumps(config["warm_start"], sort_keys=True),
        world=lambda wildcards, input: os.path.dirname(input.world[0]),
        folder=folder_of,
    shell:
        "python -m workflows.world.warm_start --world {params.world:q} --model {params.model:q} "
        "--training {params.training:q} --seed {wildcards.ws} --output {params.folder:q} 2> {log:q}"
