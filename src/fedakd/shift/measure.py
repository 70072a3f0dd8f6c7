"""How far each site's inputs and labels are from the pool, and how much of that is chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedakd.gaussians import Gaussian, kl, moments, shrunk
from fedakd.partition.diagnosis import label_kl
from fedakd.shift.sites import Sites
from fedakd.theory.gaussian import sampling

Features = NDArray[np.float64]
REPEATS = 99  # random parts each site is compared with
FEWEST = 3  # different rows of which anything can be said
FLAT = 1e-10  # of the largest variance: directions in which the pool itself does not vary


@dataclass(frozen=True)
class Chance:
    """What rows drawn at random from the pool would show: the mean and where 95 % of such draws lie."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class SiteShift:
    """One site beside the pool; divergences in nats."""

    name: str
    rows: int
    distinct: int
    dims: int
    kl: float  # exact, of the Gaussians fitted to both; infinite where rows span too little
    of_mean: float  # the part of it that the means alone give
    shrunk: float  # the same with a Ledoit-Wolf covariance, in the pool's own units
    sampling: float  # M(M+3)/4A: what A different rows of the pool's own Gaussian give on average
    chance: Chance  # of `kl`
    shrunk_chance: Chance
    label_kl: float  # nan where there are no labels
    label_chance: Chance
    told: float  # share of its rows that a classifier of equal weights assigns to it
    guessed: float  # by guessing: one over the number of sites

    @property
    def enough(self) -> bool:
        """Whether there are rows enough to say anything."""
        return self.distinct >= FEWEST

    @property
    def usable(self) -> bool:
        """Whether there are rows enough for the plain fit: random rows of as many span all directions."""
        return math.isfinite(self.chance.high)

    @property
    def shifted(self) -> bool:
        if not self.enough:
            return False
        return self.kl > self.chance.high if self.usable else self.shrunk > self.shrunk_chance.high

    @property
    def labels_shifted(self) -> bool:
        return self.enough and self.label_kl > self.label_chance.high


def measured(
    sites: Sites,
    features: Callable[[NDArray[np.int64]], Features],
    told: Sequence[float],
    rng: np.random.Generator,
    *,
    repeats: int = REPEATS,
    progress: Callable[[str], None] = lambda name: None,
) -> tuple[SiteShift, ...]:
    """Every site; `told` is what a site classifier recognises of each."""
    z = whitened(features(sites.pool))
    streams, found = rng.spawn(len(sites.parts)), []
    for name, part, own, stream in zip(sites.names, sites.parts, told, streams, strict=True):
        found.append(_site(sites, name, np.searchsorted(sites.pool, part), z, own, stream, repeats))
        progress(name)
    return tuple(found)


def whitened(x: Features) -> Features:
    """Zero mean and unit covariance, without directions in which nothing varies; exact KL stays as it is.

    A shrunk covariance tends to a multiple of the identity, which means something only in such units.
    """
    centred = x - x.mean(axis=0)
    deviation = centred.std(axis=0)
    centred = centred[:, deviation > 0] / deviation[deviation > 0]  # units must not hide what varies little
    variances, axes = np.linalg.eigh(centred.T @ centred / len(x))
    kept = variances > FLAT * max(variances[-1], np.finfo(np.float64).tiny)
    return np.asarray(centred @ (axes[:, kept] / np.sqrt(variances[kept])))


def random_parts(
    at: NDArray[np.int64], pool: int, repeats: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Places in the pool drawn at random, as many different ones as a site has, and as often repeated.

    Were there no shift, the site would be such a draw: without replacement, for a site is part of the pool.
    """
    counts = np.unique(at, return_counts=True)[1]
    return [np.repeat(rng.permutation(pool)[: len(counts)], counts) for _ in range(repeats)]


def _site(
    sites: Sites,
    name: str,
    at: NDArray[np.int64],
    pool: Features,
    told: float,
    rng: np.random.Generator,
    repeats: int,
) -> SiteShift:
    y, dims, own = sites.dataset.y[sites.pool], pool.shape[1], pool[at]
    q, distinct = Gaussian(np.zeros(dims), np.eye(dims)), len(np.unique(at))
    draws = random_parts(at, len(pool), repeats, rng)
    robust = [kl(shrunk(pool[rows]), q) for rows in draws] if distinct >= FEWEST else [math.inf]
    labels = [label_kl(y[rows], y) for rows in draws] if sites.dataset.classes > 1 else [math.nan]
    return SiteShift(
        name=name,
        rows=len(at),
        distinct=distinct,
        dims=dims,
        kl=kl(moments(own), q),
        of_mean=float(own.mean(axis=0) @ own.mean(axis=0) / 2),
        shrunk=kl(shrunk(own), q) if distinct >= FEWEST else math.inf,
        sampling=sampling(dims, distinct),
        chance=chance([kl(moments(pool[rows]), q) for rows in draws]),
        shrunk_chance=chance(robust),
        label_kl=label_kl(y[at], y) if sites.dataset.classes > 1 else math.nan,
        label_chance=chance(labels),
        told=told,
        guessed=1 / len(sites.parts),
    )


def chance(values: Sequence[float] | Features) -> Chance:
    if not np.isfinite(values).all():
        return Chance(math.inf, math.inf, math.inf)
    low, high = np.quantile(values, [0.025, 0.975])
    return Chance(float(np.mean(values)), float(low), float(high))
