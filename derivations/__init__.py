"""The mathematics behind `methods/`, stated and proved for a vocabulary of any size.

`python -m derivations` proves every theorem (SymPy) and certifies it numerically (mpmath); `--new` does so for a
divergence of your own (derivations/new). Nothing here imports torch:
this room is the yardstick that `tests/agreement/` holds the shipped torch functions against.
"""
