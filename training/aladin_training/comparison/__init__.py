"""Comparison of recipes: trained with several seeds, evaluated alike, shown in one table.

OUT/runs/RECIPE/seed-S/       a run of `aladin_training.stages.run`, with its stored evaluation
OUT/stages/                   finished stages that several runs begin with
OUT/step_times.json           how long a training step of each recipe takes
OUT/report.md, report.html    the report; its pictures are in OUT/figures/
"""
