"""How many effective rows the weights of a shifted client must leave in the train and in the test pool."""

from __future__ import annotations

from dataclasses import dataclass

from fedakd.partition.contract import Features
from fedakd.partition.tilt import STRONGEST, Shares, Tilt, effective_size, strongest

HEALTHY, LEAST = (
    0.05,
    0.01,
)  # of a client's training rows: a warning below the first, an error below the second
ENOUGH = 100.0  # effective test rows that always suffice
ROUNDING = 1e-6


def needed(test_size: int) -> float:
    """The effective test rows a client must keep if its size gives it `test_size` test rows.

    >>> needed(1400), needed(36)
    (100.0, 18.0)
    """
    return min(ENOUGH, test_size / 2)


@dataclass(frozen=True, eq=False)
class Guard:
    """The whitened rows of both pools and the effective rows that one client must keep of each.

    Sizes are those at scale 1, so what is accepted does not depend on how few rows a run trains on.
    """

    train: Features  # (rows, dims)
    test: Features  # (rows, dims); without rows nothing is required of them
    size: int  # training rows of the client
    test_size: int
    shares: Shares  # of the training rows drawn
    test_shares: Shares
    force: bool = False

    @property
    def least(self) -> float:
        return 0.0 if self.force else LEAST * self.size

    @property
    def least_test(self) -> float:
        return 0.0 if self.force else self.needed

    @property
    def needed(self) -> float:
        return needed(self.test_size) if len(self.test) else 0.0

    def effective(self, tilt: Tilt) -> float:
        return effective_size(self.shares(tilt.logs(self.train)))

    def test_effective(self, tilt: Tilt) -> float:
        return effective_size(self.test_shares(tilt.logs(self.test))) if len(self.test) else 0.0

    def accepts(self, tilt: Tilt) -> bool:
        """Whether both pools keep enough effective rows, or the client is forced."""
        enough = carries(self.effective(tilt), self.least)
        return enough and carries(self.test_effective(tilt), self.least_test)

    def strongest(self, u: Features) -> float:
        """The strongest tilt along `u` that leaves enough effective test rows."""
        return strongest(self.test @ u, self.least_test, self.test_shares) if len(self.test) else STRONGEST


def carries(effective: float, least: float) -> bool:
    """Whether so many effective rows are as many as needed, up to rounding."""
    return effective >= least * (1 - ROUNDING)
