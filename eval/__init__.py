"""Scores, statistics, tables, figures and the report; from checkpoints and run logs to what a reader sees.

python -m eval.score            checkpoints -> scores.json, samples.jsonl (lm-eval)
python -m eval.tables           scores and run logs -> scores.csv, curves.csv, summary.csv
python -m eval.figures.curves   curves.csv -> curves.svg; disagreement, weights, finite_step, tail_rules: the theory
python -m eval.report           all of it -> one report.html
"""
