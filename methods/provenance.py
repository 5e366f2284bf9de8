"""How sure a formula or a constant is: the mark beside its source, and what the mark says."""

from typing import Literal

Mark = Literal["F", "S", "I", "N"]
MARKS: dict[Mark, str] = {
    "F": "exact from the paper or its authors' code",
    "S": "from a secondary source that read the paper",
    "I": "inferred: plausible, not seen in a source",
    "N": "ours",
}
