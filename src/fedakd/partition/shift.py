"""Covariate shift (BCS with equal sizes, ICS with power-law sizes): FedAKD, KDD 2025, Algorithm 2.

Deviations from the printed algorithm:

- it estimates a covariance on raw features, which is singular for images; we whiten the first `dims`
  principal components, fitted on the train pool alone.
- its weight is the target density instead of target over base, which on Gaussian data moves the mean by half
  of delta and halves the covariance; it is kept as `mode="density"`, the quotient is `mode="ratio"`.
- its C is a length put into the weights; with `mode="calibrated"` the weights are solved for, so that the
  squared Mahalanobis distance between the client's mean and the pool's is C.
- it takes the first delta; directions differ a lot in how many rows they leave, so up to `directions` are
  tried.
- it samples before the split into train and test; we draw the train parts from the train pool alone, and
  judge every client on the whole test pool, each row with the weight that a draw would have given it.

It shifts the mean alone; `c_cov` asks for a change of the covariance too, `kl` for the divergence of both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedakd import gaussians
from fedakd.errors import PartitionError, unknown
from fedakd.partition import whitening
from fedakd.partition.bending import Bend, Bending, bend, bent
from fedakd.partition.contract import Features, Request, Rows
from fedakd.partition.diagnosis import weighted_moments
from fedakd.partition.guard import Guard
from fedakd.partition.search import Attempt, attempt, choice, refusal, warnings
from fedakd.partition.shift_plan import ShiftPlan
from fedakd.partition.sizes import filled_sizes, power_law
from fedakd.partition.tilt import Shares, Tilt, calibrated, unit
from fedakd.partition.whitening import Encoder

Mode = Literal["calibrated", "ratio", "density"]
Sizes = Literal["equal", "power"]
FeatureMap = Literal["pca", "raw"]
USUAL = 5.0


@dataclass(frozen=True)
class GaussianShift:
    """Each client's features shifted by a squared Mahalanobis distance `c` in a direction of its own.

    `c_cov` is what the covariance alone is to contribute to the KL divergence from the pool, `kl` the whole
    divergence. `features` may also be a function (all inputs, rows) -> (rows, M), which moves to `encoder`.
    """

    c: float | None = None  # 5 unless kl is given
    sizes: Sizes = "equal"
    mode: Mode = "calibrated"
    dims: int = 10
    replacement: bool = True
    directions: int = 32
    force: bool = False
    kl: float | None = None
    c_cov: float | None = None
    cov: Bending = "scale"
    features: FeatureMap | Encoder = "pca"
    encoder: Encoder | None = None

    def __post_init__(self) -> None:
        if self.c is None and self.kl is None:
            object.__setattr__(self, "c", USUAL)
        if callable(self.features):
            object.__setattr__(self, "encoder", self.features)
            object.__setattr__(self, "features", "pca")
        for name, number in (("dims", self.dims), ("directions", self.directions)):
            if number < 1:
                raise PartitionError(f"{name} must be at least 1, got {number}")
        for name, kind in (("mode", Mode), ("sizes", Sizes), ("cov", Bending), ("features", FeatureMap)):
            if getattr(self, name) not in get_args(kind):
                raise PartitionError(unknown(name, getattr(self, name), get_args(kind)))
        self._check_strengths()
        self._check_company()

    def _check_strengths(self) -> None:
        if self.c is not None and not (0 < self.c < math.inf or (self.c == 0 and self.c_cov)):
            what = "c, the squared Mahalanobis shift, must be positive and finite"
            raise PartitionError(f"{what}, got {self.c}" + "; 0 needs a c_cov" * (self.c == 0))
        for name, value in (("kl", self.kl), ("c_cov", self.c_cov)):
            if value is not None and not 0 < value < math.inf:
                raise PartitionError(f"{name}, a KL divergence, must be positive and finite, got {value}")

    def _check_company(self) -> None:
        if self.kl is not None and (self.c, self.c_cov) != (None, None):
            raise PartitionError(
                f"kl={self.kl:g} is mean and covariance together; leave out c and c_cov, or kl"
            )
        solved = [name for name in ("kl", "c_cov") if getattr(self, name) is not None]
        if solved and self.mode != "calibrated":
            raise PartitionError(f"{solved[0]} is solved for, which needs mode=calibrated, got {self.mode}")
        if self.cov != "scale" and self.c_cov is None:
            raise PartitionError(f"cov={self.cov} needs c_cov, how far the covariance is to change")

    def plan(self, request: Request, rng: np.random.Generator) -> ShiftPlan:
        fit_rng, *client_rngs = rng.spawn(request.clients + 1)
        z, few = self._whitened(request.x, request.train, fit_rng)
        guards = self._guards(request, z)
        found = [self._search(guard, stream) for guard, stream in zip(guards, client_rngs, strict=True)]
        choices = tuple(one for one in map(choice, found) if one)
        if len(choices) < request.clients:
            raise PartitionError(refusal(self, found, z.shape[1]))
        return ShiftPlan(self, z, request.y, request.train, choices, (*few, *warnings(choices)))

    def _guards(self, request: Request, z: Features) -> list[Guard]:
        """What each client must keep of both pools."""
        clients, train, test = request.clients, z[request.train], z[request.test]
        drawn, whole = (filled_sizes(n, clients, self.exponent) for n in (request.total, request.unscaled))
        judged = power_law(request.test_total, clients, self.exponent)
        return [
            Guard(train, test, size, rows, self.shares(few), self.shares(rows), self.force)
            for few, size, rows in zip(drawn, whole, judged, strict=True)
        ]

    @property
    def exponent(self) -> float:
        return 1.0 if self.sizes == "power" else 0.0

    def shares(self, size: int) -> Shares:
        """The share of each row in what a client of this size draws."""
        return Shares() if self.replacement else Shares(size)

    def _whitened(self, x: NDArray[Any], train: Rows, rng: np.random.Generator) -> tuple[Features, list[str]]:
        """Features of all rows, and a warning if they are fewer than asked for."""
        x = x if self.encoder is None else whitening.encoded(self.encoder, x)
        dims = self.dims
        if self.features == "raw":
            dims, x = whitening.raw_dims(x, train), whitening.scaled(x, train)
        white = whitening.remembered(x, train, dims, rng)
        z = white.features(x)
        if not np.isfinite(z).all():
            raise PartitionError("a covariate shift needs finite features; some rows hold nan or inf")
        if self.cov == "rotate" and white.dims < 2:
            raise PartitionError("cov=rotate needs two directions, but the features vary in one; try scale")
        few = (
            f"the features vary in {white.dims} dimensions only; the shift uses these instead of dims={dims}"
        )
        return z, [few] if white.dims < dims else []

    def _search(self, guard: Guard, rng: np.random.Generator) -> list[Attempt]:
        """Directions up to the first that leaves enough rows."""
        attempts: list[Attempt] = []
        for u, family in self._directions(guard.train.shape[1], rng):
            attempts.append(self._attempt(u, family, guard))
            if attempts[-1].healthy:
                break
        return attempts

    def _directions(self, dims: int, rng: np.random.Generator) -> Iterator[tuple[Features, Bend | None]]:
        """Where the mean is to go and how the covariance is to change; scaling alone has no direction."""
        seen = set()
        for _ in range(self.directions):
            u = unit(dims, rng)
            family = None if self.c_cov is None else bend(self.cov, dims, rng)
            alike = family.kind if family and self.c == 0 and family.kind != "rotate" else None
            if alike is None or alike not in seen:
                yield u, family
            seen.add(alike)

    def _attempt(self, u: Features, family: Bend | None, guard: Guard) -> Attempt:
        """The weights along `u`, or none if too few rows would carry them."""
        if self.mode != "calibrated":
            return self._uncalibrated(u, guard)
        if family is not None:
            return self._bent(u, family, guard)
        found, reach = self._calibrated(u, guard)
        return attempt(found, found.delta if found else u, guard, reach)

    def _uncalibrated(self, u: Features, guard: Guard) -> Attempt:
        """The weights of a formula, which leave as many rows as they do."""
        tilt = Tilt(math.sqrt(self.c or 0.0) * u, density=self.mode == "density")
        left = attempt(tilt, tilt.delta, guard)
        return left if guard.accepts(tilt) else replace(left, tilt=None)

    def _calibrated(self, u: Features, guard: Guard) -> tuple[Tilt | None, float]:
        """The weights along `u` that shift by c, or by kl if that was asked, and how far they could."""
        z, limit = guard.train, guard.strongest(u)
        if self.kl is None:
            return calibrated(u, z, self.c or 0.0, guard.least, guard.shares, limit=limit)
        pool = gaussians.moments(z)

        def divergence(given: Features, z: Features) -> float:
            return gaussians.kl(weighted_moments(given, z), pool)

        return calibrated(u, z, self.kl, guard.least, guard.shares, divergence, limit)

    def _bent(self, u: Features, family: Bend, guard: Guard) -> Attempt:
        """The weights that also change the covariance by c_cov."""
        c = self.c or 0.0
        alone, reach = self._calibrated(u, guard) if c else (None, math.nan)
        if c and alone is None:
            return attempt(None, u, guard, reach)
        found = bent(u, family, guard.train, c, self.c_cov or 0.0, guard.accepts, guard.shares)
        return attempt(found.tilt, u * (c > 0), guard, reach, (found.least, found.most))
