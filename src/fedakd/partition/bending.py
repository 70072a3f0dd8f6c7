"""Weights that change the covariance of whitened rows, alone or beside a shift of their mean.

On Gaussian rows the weights exp(v'z + z'Fz / 2) give mean Sv and covariance S = (I - F)^-1. Real rows are not
Gaussian: there a part of v holds the mean where it was, another along the direction asked for shifts it, and
the strength of F is solved for, so that the covariance's share in the KL divergence is what was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import numpy as np

from fedakd.gaussians import moments
from fedakd.partition.contract import Features
from fedakd.partition.diagnosis import covariance_kl, weighted_moments
from fedakd.partition.tilt import FAR, STRONGEST, Shares, Tilt, root, squared_shift, unit

Bending = Literal["scale", "widen", "narrow", "rotate"]
WEAKEST = 1 / 32
HALVINGS = 6  # of the interval in which the largest strength lies
HELD = 1e-7  # length of a mean that counts as zero
STEPS = 50


@dataclass(frozen=True, eq=False)
class Bend:
    """A family of forms F, one for each strength: all directions wider or narrower, or two correlated."""

    kind: Bending
    plane: Features  # (dims, 2), orthonormal: the diagonals between the two directions that become correlated

    def form(self, strength: float) -> Features:
        """On Gaussian rows `rotate` correlates two directions by s / (1 + s) and keeps the trace."""
        wide, narrow = self.plane.T
        if self.kind == "rotate":
            turned = np.outer(wide, wide) / (1 + 2 * strength) - np.outer(narrow, narrow)
            return np.asarray(strength * turned)
        return np.asarray((strength if self.kind == "widen" else -strength) * np.eye(len(self.plane)))

    def lean(self, u: Features, strength: float) -> Features:
        """The linear term that moves the mean of Gaussian rows along `u`: S^-1 u, up to its length."""
        return np.asarray(u - self.form(strength) @ u) if self.kind == "rotate" else u


class Bent(NamedTuple):
    """The weights found, or none, and the covariance's KL divergence without and with as much as possible."""

    tilt: Tilt | None
    least: float
    most: float


def bend(kind: Bending, dims: int, rng: np.random.Generator) -> Bend:
    """A family at random: for `scale` wider or narrower, for `rotate` two orthogonal directions."""
    if kind == "scale":
        kind = "widen" if rng.random() < 0.5 else "narrow"
    first = unit(dims, rng)
    second = unit(dims, rng)
    if dims == 1:
        return Bend(kind, np.ones((1, 2)))
    second = second - (second @ first) * first
    second = second / np.linalg.norm(second)
    return Bend(kind, np.stack([first + second, first - second], axis=1) / math.sqrt(2))


def bent(
    u: Features,
    family: Bend,
    z: Features,
    c: float,
    c_cov: float,
    enough: Callable[[Tilt], bool],
    shares: Shares,
) -> Bent:
    """The weights with squared shift `c` along `u` whose covariance contributes `c_cov` to the KL divergence.

    All with `enough` effective rows. From strength zero to the strongest that leaves so many, the divergence
    is continuous, so whatever lies between both ends is reached.
    """
    pool = moments(z)

    @cache
    def at(strength: float) -> tuple[Tilt | None, float]:
        tilt = _beside(u, family, strength, z, c, shares)
        if tilt is None or not enough(tilt):
            return None, FAR
        return tilt, min(covariance_kl(weighted_moments(shares(tilt.logs(z)), z), pool), FAR)

    low = at(0.0)[1]
    if c_cov < low:  # no need to look how far it could go
        return Bent(None, low, low)
    strongest = _strongest(lambda strength: at(strength)[0] is not None)
    high = at(strongest)[1]
    if high < c_cov:
        return Bent(None, low, high)
    return Bent(at(root(lambda strength: c_cov - at(strength)[1], strongest))[0], low, high)


def _beside(u: Features, family: Bend, strength: float, z: Features, c: float, shares: Shares) -> Tilt | None:
    """The weights of this strength whose squared shift is `c`; none if the mean cannot be brought there."""
    form = family.form(strength)
    logs = Tilt(np.zeros_like(u), form=form).logs(z)
    still = _held(logs, z, shares) if strength > 0 else np.zeros_like(u)
    if still is None or c == 0:
        return None if still is None else Tilt(still, form=form)
    lean = family.lean(u, strength)
    logs, along = logs + z @ still, z @ lean

    def shift(t: float) -> float:
        return squared_shift(shares(logs + t * along), z)

    enough = next((t for t in _doubling(math.sqrt(c)) if shift(t) >= c), None)
    return None if enough is None else Tilt(still + root(lambda t: c - shift(t), enough) * lean, form=form)


def _held(logs: Features, z: Features, shares: Shares) -> Features | None:
    """The linear term that brings the weighted mean back to zero, by Newton's method; none if it cannot.

    The mean is the gradient of a convex function of v, so a short enough step always makes it smaller.
    """
    v, given = np.zeros(z.shape[1]), shares(logs)
    for _ in range(STEPS):
        mean = np.einsum("n,nd->d", given, z)
        if np.linalg.norm(mean) < HELD:
            return v
        step = -np.linalg.solve(_jacobian(shares.slopes(given), z), mean)
        for length in (0.5**halving for halving in range(12)):
            tried = shares(logs + z @ (v + length * step))
            if squared_shift(tried, z) < mean @ mean:
                break
        else:
            return None
        v, given = v + length * step, tried
    return None


def _jacobian(slopes: Features, z: Features) -> Features:
    """How the weighted mean moves with the linear term: a covariance; never quite singular."""
    total = slopes.sum()
    centred = z - np.einsum("n,nd->d", slopes, z) / total
    return np.asarray((centred * slopes[:, None]).T @ centred + 1e-12 * np.eye(z.shape[1]))


def _strongest(possible: Callable[[float], bool]) -> float:
    """The largest strength that is possible, if all weaker ones are; zero if none."""
    low = high = 0.0
    for strength in _doubling(WEAKEST):
        low, high = (strength, high) if possible(strength) else (low, strength)
        if high:
            break
    for _ in range(HALVINGS if high else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if possible(middle) else (low, middle)
    return low


def _doubling(first: float) -> list[float]:
    return (
        [first * 2**n for n in range(1 + int(math.log2(STRONGEST / first)))] if first < STRONGEST else [first]
    )
