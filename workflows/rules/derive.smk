"""SymPy proves the formulas; then the torch code is held against the proved expressions."""


rule derive:
    input:
        code=sources("derivations/**/*.py"),
    output:
        json=ensure(f"{RESULTS}/derivations/theorems.json", non_empty=True),
        text=report(f"{RESULTS}/derivations/theorems.txt", caption="../report/derivations.rst", category="Derivations"),
    log:
        f"{RESULTS}/logs/derive.log",
    benchmark:
        f"{RESULTS}/timings/derive.tsv"
    conda:
        "../envs/tether.yaml"
    threads: 1
    shell:
        "echo '[derive] proving the formulas' && "
        "python -m derivations --json {output.json:q} --text {output.text:q} > {log:q} 2>&1"


rule agree:
    input:
        code=sources("derivations/**/*.py", "methods/*.py", "methods/catalogue/drpo.py", "workflows/scripts/agree.py"),
    output:
        json=ensure(f"{RESULTS}/derivations/agreement.json", non_empty=True),
    log:
        f"{RESULTS}/logs/agree.log",
    conda:
        "../envs/tether.yaml"
    threads: 1
    shell:
        "echo '[agree] holding the code against the proofs' && "
        "python -m workflows.scripts.agree --output {output.json:q} > {log:q} 2>&1"
