"""SymPy proves the formulas; the torch code is held against the proved expressions; figures show what follows."""


localrules:
    theory,


# In the order of the report.
THEORY = ["disagreement", "weights", "finite_step", "tail_rules"]


rule derive:
    input:
        # Its theorems are found by looking into their folder, not by name.
        code=sources("derivations/**/*.py"),
    output:
        json=ensure(f"{RESULTS}/derivations/theorems.json", non_empty=True),
        text=report(
            ensure(f"{RESULTS}/derivations/theorems.txt", non_empty=True),
            caption="../report/derivations.rst",
            category="Derivations",
        ),
        tex=ensure(f"{RESULTS}/derivations/theorems.tex", non_empty=True),
        # Written beside the LaTeX.
        page=report(
            ensure(f"{RESULTS}/derivations/theorems.html", non_empty=True),
            caption="../report/derivations.rst",
            category="Derivations",
        ),
    log:
        f"{RESULTS}/logs/derive.log",
    benchmark:
        f"{RESULTS}/timings/derive.tsv"
    threads: 1
    message:
        "proving the formulas"
    shell:
        "python -m derivations --json {output.json:q} --text {output.text:q} --tex {output.tex:q} > {log:q} 2>&1"


rule agree:
    input:
        code=[*program("workflows.scripts.agree"), *sources("derivations/**/*.py")],
    output:
        json=ensure(f"{RESULTS}/derivations/agreement.json", non_empty=True),
    log:
        f"{RESULTS}/logs/agree.log",
    threads: 1
    message:
        "holding the code against the proofs"
    shell:
        "python -m workflows.scripts.agree --output {output.json:q} > {log:q} 2>&1"


rule theory:
    input:
        code=lambda wildcards: program(
            f"eval.figures.{wildcards.figure}",
            # Drawn by name. Not the whole catalogue: a new method's file draws nothing anew.
            *(
                f"methods.catalogue.{name}"
                for name in ("ppo_clip_higher", "spo", "drpo")
                if wildcards.figure == "weights"
            ),
        ),
    output:
        report(
            ensure(f"{RESULTS}/figures/{{figure}}.svg", non_empty=True),
            caption="../report/theory.rst",
            category="Derivations",
        ),
    log:
        f"{RESULTS}/logs/{{figure}}.log",
    wildcard_constraints:
        figure="|".join(THEORY),
    shell:
        "python -m eval.figures.{wildcards.figure} --output {output:q} > {log:q} 2>&1"
