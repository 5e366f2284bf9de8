"""What a method is, in words and as a curve, read from its docstring, options and coefficient: nothing is typed twice.

`python -m methods list | show | pages`.
"""
