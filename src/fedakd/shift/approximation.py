"""How well the theorems' approximations follow the KL of real sites: the paper's Figure 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedakd import figures
from fedakd.errors import DataError
from fedakd.gaussians import kl, moments
from fedakd.shift.measure import Chance, Features, chance, random_parts
from fedakd.shift.sites import Sites
from fedakd.theory.gaussian import expansion, theorem2

REPEATS = 20


@dataclass(frozen=True)
class Approximated:
    """One site; the perturbation is the difference between the Gaussians fitted to it and to the pool."""

    name: str
    rows: int
    exact: float
    printed: float  # Theorem 2, and
    corrected: (
        float  # the true expansion, both without M(M+3)/4A: the fitted difference contains that already
    )
    random: Chance  # of as many rows drawn at random

    @property
    def errors(self) -> tuple[float, float]:
        """Relative, of the printed and of the corrected form."""
        return self.printed / self.exact - 1, self.corrected / self.exact - 1


def approximated(
    sites: Sites,
    features: Callable[[NDArray[np.int64]], Features],
    rng: np.random.Generator,
    repeats: int = REPEATS,
) -> list[Approximated]:
    """Every site with more rows than dimensions, the largest first."""
    pool = features(sites.pool)
    q, found = moments(pool), []
    for name, part in sorted(zip(sites.names, sites.parts, strict=True), key=lambda one: -len(one[1])):
        at = np.searchsorted(sites.pool, part)
        if len(np.unique(at)) <= pool.shape[1]:
            continue
        p, random = moments(pool[at]), random_parts(at, len(pool), repeats, rng)
        drawn = chance([kl(moments(pool[rows]), q) for rows in random])
        found.append(Approximated(name, len(at), kl(p, q), theorem2(p, q), expansion(p, q), drawn))
    if not found:
        raise DataError(
            f"no site has more different rows than features, {pool.shape[1]}; choose fewer --dims"
        )
    return found


def summary(found: list[Approximated]) -> str:
    """How far both forms are from the exact KL, and what chance gives."""
    printed, corrected, random = _medians(found)
    return (
        f"Of {len(found)} sites, median error of Theorem 2 as printed {_times(printed)} the exact KL, of the "
        f"corrected expansion {_times(corrected)}: both are for small shifts, the exact KL needs neither. "
        f"Random rows of the same number show {random:.1%} of the real KL."
    )


def over_seeds(found: Mapping[int, Sequence[Approximated]]) -> str:
    """Between which bounds both forms' errors, and what chance gives, lie from seed to seed."""
    medians = [_medians(own) for own in found.values()]
    printed, corrected, random = ((min(own), max(own)) for own in zip(*medians, strict=True))
    return (
        f"Over {len(found)} seeds the median error of Theorem 2 as printed is {_times(printed[0])} to "
        f"{_times(printed[1])} the exact KL, of the corrected expansion {_times(corrected[0])} to "
        f"{_times(corrected[1])}; random rows show {random[0]:.1%} to {random[1]:.1%} of the real KL."
    )


def _medians(found: Sequence[Approximated]) -> tuple[float, float, float]:
    """Over sites: the errors of the printed and the corrected form, and random rows' KL over the real one."""
    printed, corrected = (float(np.median([abs(one.errors[form]) for one in found])) for form in (0, 1))
    return printed, corrected, float(np.median([one.random.mean / one.exact for one in found]))


def _times(error: float) -> str:
    return f"{error:.2f} times" if error < 10 else f"{error:,.0f} times"


def draw(found: list[Approximated], stem: Path) -> None:
    places = np.arange(len(found))
    with figures.drawn(stem, size=(7.0, 4.2)) as (axes,):
        axes.plot(places, [one.exact for one in found], "o-", color=figures.COLOURS[1], label="real KL")
        axes.plot(places, [one.printed for one in found], "s--", label="Theorem 2, as printed")
        corrected = [one.corrected for one in found]
        axes.plot(places, corrected, "^:", color=figures.COLOURS[3], label="corrected expansion")
        low, high = ([getattr(one.random, end) for one in found] for end in ("low", "high"))
        axes.plot(
            places, [one.random.mean for one in found], "x-", color=figures.COLOURS[2], label="random rows"
        )
        axes.fill_between(places, low, high, color=figures.COLOURS[2], alpha=0.3)
        axes.set(xlabel="site, by falling number of rows", ylabel="KL divergence (nats)", yscale="symlog")
        axes.set_xticks(places, [f"{one.name}\n{one.rows}" for one in found], fontsize=8)
        axes.legend(loc="lower center", ncol=2, bbox_to_anchor=(0.5, 1.0))


def write(found: Mapping[int, Sequence[Approximated]], stem: Path) -> None:
    """The numbers of every seed and site as CSV."""
    rows = [{"seed": seed, **_flat(one)} for seed, own in found.items() for one in own]
    figures.write_csv(stem.with_suffix(".csv"), rows)


def _flat(one: Approximated) -> dict[str, object]:
    values = asdict(one)
    random = values.pop("random")
    return values | {f"random_{part}": value for part, value in random.items()}
