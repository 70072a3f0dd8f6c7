"""Does the shift sit in the rows a model gets wrong? The paper's Figure 2, with the control it lacks.

The paper compares each client's rows that a model gets right with everybody's, and those it gets wrong
likewise, and finds the latter farther apart. But there are few wrong rows, and few rows are always far from
many. So the right and the wrong are also parted at random, within each client and in the same numbers: what
random parts show is what size alone gives. Every row counts once in a client: copies could not be parted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import DataError
from fedakd.gaussians import kl, shrunk
from fedakd.shift.measure import Chance, Features, chance

Marks = NDArray[np.bool_]
REPEATS = 100
LEVEL = 0.05  # a difference that so few random partings reach is more than size explains
LEAST = 3  # rows on either side, or a client is left out: the shrunk covariance of two is flat


@dataclass(frozen=True)
class Halves:
    """One client's rows that the model gets right and wrong, each beside everybody's."""

    name: str
    right: int
    wrong: int
    kl_right: float
    kl_wrong: float
    kl_all: float  # of all its rows beside everybody's
    chance_right: Chance  # if as many rows were called right at random
    chance_wrong: Chance


@dataclass(frozen=True)
class RightWrong:
    clients: tuple[Halves, ...]
    difference: float  # mean over clients of KL(wrong) - KL(right)
    chance: Chance  # of it
    p: float  # of random parts, the share that differ as much

    @property
    def farther(self) -> int:
        """Clients whose wrong rows are farther from everybody's than random parts of the same size."""
        return sum(one.kl_wrong > one.chance_wrong.high for one in self.clients)

    @property
    def nearer(self) -> int:
        """Clients whose right rows are nearer to everybody's than random parts of the same size."""
        return sum(one.kl_right < one.chance_right.low for one in self.clients)

    @property
    def left(self) -> float:
        """What is left of the shift in the right rows: median of KL(right) over that of random parts."""
        return float(np.median([one.kl_right / one.chance_right.mean for one in self.clients]))

    @property
    def beyond_size(self) -> bool:
        """Whether wrong rows are farther, against right ones, than their number explains."""
        return self.p <= LEVEL

    @property
    def survives(self) -> bool:
        """Whether the claim does, as a whole: wrong rows are farther, and right ones hardly shifted."""
        return self.beyond_size and self.difference > 0 and self.left <= 0.5


def compared(
    names: Sequence[str],
    features: Sequence[Features],
    right: Sequence[Marks],
    rng: np.random.Generator,
    *,
    repeats: int = REPEATS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RightWrong:
    """Every client with rows on both sides; divergences are of Ledoit-Wolf fits, as wrong rows may be few."""
    kept = _with_both_sides(right)
    z, marks = [features[k] for k in kept], [right[k] for k in kept]
    observed, random = np.array(divergences(z, marks)), []
    if not np.isfinite(observed).all():
        raise DataError(
            "some client's right or wrong rows are all alike; choose fewer --dims, or other features"
        )
    for done in range(repeats):
        random.append(divergences(z, [rng.permutation(one) for one in marks]))
        progress(done + 1, repeats)
    table, whole = np.array(random), shrunk(np.concatenate(z))  # (repeats, sides, clients)
    clients = tuple(
        _halves(names[k], marks[at], observed[:, at], table[:, :, at], kl(shrunk(z[at]), whole))
        for at, k in enumerate(kept)
    )
    differences = (table[:, 1] - table[:, 0]).mean(axis=1)
    seen = float(np.mean(observed[1] - observed[0]))
    p = (1 + int((differences >= seen).sum())) / (1 + repeats)
    return RightWrong(clients, seen, chance(differences), p)


def _with_both_sides(right: Sequence[Marks]) -> list[int]:
    kept = [k for k, marks in enumerate(right) if LEAST <= marks.sum() <= len(marks) - LEAST]
    if len(kept) < 2:
        raise DataError(
            f"at least two clients with {LEAST} rows right and {LEAST} wrong are needed to compare them, got "
            f"{len(kept)}; fewer rounds make more wrong rows"
        )
    return kept


def _halves(name: str, marks: Marks, observed: Features, random: Features, kl_all: float) -> Halves:
    """Observed: (sides,); random: (repeats, sides)."""
    return Halves(
        name=name,
        right=int(marks.sum()),
        wrong=int((~marks).sum()),
        kl_right=float(observed[0]),
        kl_wrong=float(observed[1]),
        kl_all=kl_all,
        chance_right=chance(random[:, 0]),
        chance_wrong=chance(random[:, 1]),
    )


def divergences(features: Sequence[Features], right: Sequence[Marks]) -> tuple[list[float], list[float]]:
    """KL of each client's right rows to everybody's right rows, and of the wrong ones likewise."""
    sides = []
    for side in (True, False):
        parts = [z[own == side] for z, own in zip(features, right, strict=True)]
        everybody = shrunk(np.concatenate(parts))
        sides.append([kl(shrunk(part), everybody) for part in parts])
    return sides[0], sides[1]


def verdict(found: RightWrong) -> str:
    """Whether the claim that the shift sits in the wrong rows, not the right ones, survives its control."""
    count = len(found.clients)
    sizes = (
        f"KL(wrong) - KL(right) is {found.difference:.2f} on average, {found.chance.low:.2f} to "
        f"{found.chance.high:.2f} if rows are called wrong at random (p = {found.p:.3f}); wrong rows are "
        f"farther than random parts of their size for {found.farther} of {count} clients"
    )
    rest = (
        f"right rows are nearer than random parts for {found.nearer}, and {found.left:.0%} of the shift of "
        "such parts is left in them (median)"
    )
    return f"{_claim(found)}. {sizes}; {rest}."


def over_seeds(found: Mapping[int, RightWrong]) -> str:
    """For how many seeds the claim survives, and the difference and what chance gives for each."""
    whole = sum(one.survives for one in found.values())
    partly = sum(one.beyond_size for one in found.values()) - whole
    each = ", ".join(
        f"{one.difference:.2f} (seed {seed}; random {one.chance.low:.2f} to {one.chance.high:.2f})"
        for seed, one in found.items()
    )
    return (
        f"Over {len(found)} seeds the claim that the shift sits in the wrong rows survives for {whole}, in "
        f"part for {partly}; of seeds whose rows are called wrong by chance one in {1 / LEVEL:.0f} would "
        f"seem to bear it out. KL(wrong) - KL(right) is {each}."
    )


def _claim(found: RightWrong) -> str:
    if not found.beyond_size and found.difference <= 0:
        return "The claim does not hold here: wrong rows are no farther from everybody's than right ones"
    if not found.beyond_size:
        return "The claim does not survive: size explains the difference"
    if found.difference <= 0:
        return (
            "The claim survives in part: wrong rows are farther than size explains, yet not than right ones"
        )
    if found.survives:
        return "The claim survives"
    return "The claim survives in part: wrong rows are farther than size explains, right ones shifted too"
