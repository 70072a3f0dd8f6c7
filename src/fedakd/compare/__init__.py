"""Comparisons over datasets, partitions, methods and seeds: planned, run by many processes, kept, read."""

from fedakd.compare.jobs import Job, jobs_of, sharded
from fedakd.compare.results import Results, Setting, read
from fedakd.compare.schema import Comparison, comparison, read_comparison
from fedakd.compare.store import Store

__all__ = [
    "Comparison",
    "Job",
    "Results",
    "Setting",
    "Store",
    "comparison",
    "jobs_of",
    "read",
    "read_comparison",
    "sharded",
]
