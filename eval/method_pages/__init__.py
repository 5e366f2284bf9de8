"""What a method is, in words and as a curve, read from its docstring, options and coefficient: nothing is typed twice.
And whether it keeps its contract (`check`).

`python -m methods list | show | check | pages`.
"""
