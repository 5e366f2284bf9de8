"""SymPy proves the formulas; the torch code is held against the proved expressions; figures show what follows."""


localrules:
    theory,


# In the order of the report.
THEORY = ["disagreement", "weights", "finite_step", "tail_rules"]


rule derive:
    input:
        code=sources("derivations/**/*.py"),
    output:
        json=ensure(f"{RESULTS}/derivations/theorems.json", non_empty=True),
        text=report(f"{RESULTS}/derivations/theorems.txt", caption="../report/derivations.rst", category="Derivations"),
        tex=f"{RESULTS}/derivations/theorems.tex",
        # Written beside the LaTeX.
        page=report(f"{RESULTS}/derivations/theorems.html", caption="../report/derivations.rst", category="Derivations"),
    log:
        f"{RESULTS}/logs/derive.log",
    benchmark:
        f"{RESULTS}/timings/derive.tsv"
    conda:
        "../envs/tether.yaml"
    threads: 1
    shell:
        "echo '[derive] proving the formulas' && "
        "python -m derivations --json {output.json:q} --text {output.text:q} --tex {output.tex:q} > {log:q} 2>&1"


rule agree:
    input:
        code=sources(
            "derivations/**/*.py",
            "methods/*.py",
            "methods/measures/*.py",
            "methods/catalogue/drpo.py",
            "workflows/scripts/agree.py",
        ),
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


rule theory:
    input:
        code=lambda wildcards: sources(
            *(f"eval/figures/{name}.py" for name in ("style", "command", "rows", wildcards.figure)),
            "eval/files.py",
            "eval/labels.py",
            "methods/*.py",
            "methods/measures/*.py",
            # Not the whole catalogue: a new method's file draws nothing anew.
            *(
                f"methods/catalogue/{name}.py"
                for name in ("ppo_clip_higher", "spo", "drpo")
                if wildcards.figure == "weights"
            ),
        ),
    output:
        report(f"{RESULTS}/figures/{{figure}}.svg", caption="../report/theory.rst", category="Derivations"),
    log:
        f"{RESULTS}/logs/{{figure}}.log",
    wildcard_constraints:
        figure="|".join(THEORY),
    conda:
        "../envs/tether.yaml"
    shell:
        "python -m eval.figures.{wildcards.figure} --output {output:q} > {log:q} 2>&1"
