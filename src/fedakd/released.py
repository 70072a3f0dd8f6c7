"""The protocol of the published code, kept to show where its numbers come from. It leaks.

What the FedAKD paper says and what the authors' code does (repository Tianrun-Yu/FedAKD, `devide.py` and the
loaders of its training scripts):

- covariate shift by importance weights: the rows are sorted by their first principal component, the lower
  half is kept and consecutive slices go to the clients. C has no effect.
- 7:1:2 into train, validation and test: each client's rows are split 80:20 after they were drawn.
- a validation set of its own: the first tenth of each client's rows, so it overlaps both train and test.
- training on the train part: FedAKD, CFFL and CGSV train on all of a client's rows, test rows included
  (`leak=True`).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedakd.audit import audit, check
from fedakd.errors import PartitionError, unknown
from fedakd.federation import Dataset, Federation
from fedakd.partition import whitening
from fedakd.partition.contract import Rows
from fedakd.partition.sizes import cut, filled_sizes
from fedakd.threads import one_blas_thread

EXPONENTS = {"power": 1.0, "equal": 0.0}
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1


def federate_released(
    dataset: Dataset,
    sizes: Literal["power", "equal"],
    clients: int,
    *,
    seed: int,
    leak: bool,
    fraction: float = 0.5,
    scale: float = 1.0,
    shifted: bool = True,
) -> Federation:
    """The federation the published code makes: BCS (equal) or ICS (power), or POW with `shifted=False`.

    With `scale` a random share of the rows it keeps: few rows are as mixed as many.
    """
    if sizes not in EXPONENTS:
        raise PartitionError(unknown("sizes", sizes, EXPONENTS))
    order_rng, split_rng, few_rng = np.random.default_rng(np.random.SeedSequence([seed, RELEASED])).spawn(3)
    rows = np.arange(getattr(dataset, "official_train", len(dataset.y)))
    half = _ordered(dataset.x, rows, shifted, order_rng)[: _total(len(rows), clients, fraction)]
    kept = half[np.sort(few_rng.permutation(len(half))[: _total(len(half), clients, scale)])]
    files = cut(kept, filled_sizes(len(kept), clients, EXPONENTS[sizes]))
    parts = [_split(file, rng) for file, rng in zip(files, split_rng.spawn(clients), strict=True)]
    federation = Federation(
        dataset=dataset,
        partition=f"released({sizes}, shifted={str(shifted).lower()}, leak={str(leak).lower()})",
        seed=seed,
        train=tuple(files) if leak else tuple(train for train, _ in parts),
        test=tuple(test for _, test in parts),
        validation=np.concatenate([file[: int(VALIDATION_SHARE * len(file))] for file in files]),
        global_test=np.concatenate([test for _, test in parts]),
        warnings=(LEAKS if leak else OVERLAPS,),
        leaky=True,
    )
    check(audit(federation))
    return federation


def _total(rows: int, clients: int, fraction: float) -> int:
    total = int(fraction * rows)
    if not 0 < fraction <= 1 or clients < 1 or total < LEAST_FILE * clients:
        raise PartitionError(
            f"each client needs {LEAST_FILE} rows, and fraction and scale must be above 0 and at most 1; "
            f"got {clients} clients and a share of {fraction} of {rows} rows"
        )
    return total


def _ordered(x: Any, rows: Rows, shifted: bool, rng: np.random.Generator) -> Rows:
    """Rows by their first principal component, lowest first, or shuffled."""
    if not shifted:
        return rng.permutation(rows)
    with one_blas_thread():
        first = whitening.fit(x, rows, 1, rng).features(x, rows)[:, 0]
    return rows[np.argsort(first, kind="stable")]


def _split(file: Rows, rng: np.random.Generator) -> tuple[Rows, Rows]:
    mixed = rng.permutation(file)
    test = max(1, round(TEST_SHARE * len(file)))
    return mixed[test:], mixed[:test]


RELEASED = 4  # the purpose of this file's random stream; fedakd.federation has 0 to 3
LEAST_FILE = 2
LEAKS = (
    "LEAKY BY DESIGN: clients train on the rows they are tested on, as in the published code; "
    "the scores are no evidence of generalisation"
)
OVERLAPS = (
    "LEAKY BY DESIGN: the validation rows are also train and test rows, as in the published code; "
    "methods that use validation rows have seen their test rows"
)
