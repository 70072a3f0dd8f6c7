"""The paper's theorems made checkable: what is printed, what is right, and what is observed."""

from __future__ import annotations

from fedakd.gaussians import kl
from fedakd.theory.contraction import Course, Fit, course, fitted, full_batch
from fedakd.theory.convergence import Constants, Rate, measured, rate, why
from fedakd.theory.fisher import Nodes, drawn, fisher, fisher_slope, theorem1, theorem1_corrected
from fedakd.theory.gaussian import expansion, sampling, sampling_exact, theorem2
from fedakd.theory.logistic import Logistic, federation, optimum

__all__ = [
    "Constants",
    "Course",
    "Fit",
    "Logistic",
    "Nodes",
    "Rate",
    "course",
    "drawn",
    "expansion",
    "federation",
    "fisher",
    "fisher_slope",
    "fitted",
    "full_batch",
    "kl",
    "measured",
    "optimum",
    "rate",
    "sampling",
    "sampling_exact",
    "theorem1",
    "theorem1_corrected",
    "theorem2",
    "why",
]
