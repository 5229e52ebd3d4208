"""Benchmark problems and the grader of their answers.

Knows data sets and answer formats; knows nothing of models, methods or how an answer came about.
"""

from semspec.problems.choice import grade_choice
from semspec.problems.grading import Grade, grade
from semspec.problems.problem import Problem, dataset_id
from semspec.problems.sets import DATASETS, check_apart, check_dataset, load

__all__ = [
    "DATASETS",
    "Grade",
    "Problem",
    "check_apart",
    "check_dataset",
    "dataset_id",
    "grade",
    "grade_choice",
    "load",
]
