"""Write the parameter `text` to the output, whole or not at all: for `script:`, which knows no limit of a shell's.

Snakemake runs it from a folder of its own, where this project's modules are not found.
"""

from pathlib import Path

job = snakemake  # type: ignore[name-defined]  # noqa: F821  # Snakemake puts it before the script
output = Path(job.output[0])
temporary = output.with_name(f"{output.name}.tmp")
temporary.write_text(job.params.text)
temporary.replace(output)
