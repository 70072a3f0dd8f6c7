"""What was found when directions were tried for a client, and what is said when none of them will do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fedakd.partition.contract import Features
from fedakd.partition.tilt import Tilt

if TYPE_CHECKING:
    from fedakd.partition.shift import GaussianShift

HEALTHY, LEAST = (
    0.05,
    0.01,
)  # effective size over client size: below the first a warning, below the second an error


@dataclass(frozen=True, eq=False)
class Attempt:
    """One direction: the weights that do what was asked, or none, and what could have been asked."""

    tilt: Tilt | None
    direction: Features  # in which the mean was to go
    effective: float
    reach: float = math.nan  # the largest c along it, or the largest KL if that was asked
    cov: tuple[float, float] | None = None  # the least and the largest c_cov beside c


@dataclass(frozen=True, eq=False)
class Choice:
    """The weights found for one client; `furthest` is the largest reach of all directions tried."""

    tilt: Tilt
    direction: Features
    effective: float
    tried: int
    reach: float
    furthest: float
    cov_reach: float


def choice(attempts: Sequence[Attempt]) -> Choice | None:
    """The attempt that leaves most rows, if any did what was asked."""
    if all(one.tilt is None for one in attempts):
        return None
    best = max((one for one in attempts if one.tilt), key=lambda one: one.effective)
    assert best.tilt is not None
    furthest = max(one.reach for one in attempts)
    cov_reach = best.cov[1] if best.cov else math.nan
    return Choice(best.tilt, best.direction, best.effective, len(attempts), best.reach, furthest, cov_reach)


def refusal(
    partition: GaussianShift, found: Sequence[Sequence[Attempt]], sizes: Sequence[int], dims: int
) -> str:
    """Which client cannot have what was asked, why, and what all clients could have."""
    failed = {k: attempts for k, attempts in enumerate(found) if choice(attempts) is None}
    by_mean = {k: own for k, own in failed.items() if not any(one.cov for one in own)}
    client = next(iter(by_mean or failed))
    told = _mean(partition, by_mean, client) if by_mean else _covariance(partition, found, client)
    sparing = told.why_rows and partition.replacement and not partition.force
    thin = f" with an effective size of at least {LEAST:.0%} of its {sizes[client]} rows" if sparing else ""
    forced = ", and force=True accepts fewer effective rows" if sparing else ""
    count = len(found[client])
    tried = f"{count} direction{'s' * (count > 1)} in {dims} dims"
    return f"client {client} cannot be {told.asked}{thin}{told.why} ({tried} tried); {told.works}{forced}"


def warnings(choices: Sequence[Choice], sizes: Sequence[int]) -> list[str]:
    """A warning that names the clients whose draws repeat few rows often."""
    shares = {k: one.effective / n for k, (one, n) in enumerate(zip(choices, sizes, strict=True))}
    thin = [k for k, share in shares.items() if share < HEALTHY]
    named = ", ".join(str(k) for k in thin)
    few = f"effective size below {HEALTHY:.0%} of their rows (lowest {min(shares.values()):.1%})"
    return [f"clients {named}: {few}, so few rows repeat often"] if thin else []


class Told(NamedTuple):
    """What was asked, why it cannot be, what could, and whether it is for want of rows."""

    asked: str
    why: str
    works: str
    why_rows: bool = True


def _mean(partition: GaussianShift, failed: dict[int, Sequence[Attempt]], client: int) -> Told:
    """Of a shift of the mean, or of the whole by KL: the largest of which none of these clients fails."""
    name, value = ("c", partition.c) if partition.kl is None else ("kl", partition.kl)
    asked = f"shifted by {name}={value:g}"
    if partition.mode != "calibrated":
        left = max(one.effective for one in failed[client])
        works = "a smaller c or fewer dims would do; mode=calibrated tells the largest c"
        return Told(asked, f": mode={partition.mode} leaves an effective size of {left:.3g}", works)
    reach = min(max(one.reach for one in attempts) for attempts in failed.values())
    return Told(asked, "", f"{name}={_floor(reach):g} is reached by all clients")


def _covariance(partition: GaussianShift, found: Sequence[Sequence[Attempt]], client: int) -> Told:
    """Of a change of the covariance: the largest that all clients have, or the least beside c."""
    wanted = partition.c_cov or 0.0
    asked = f"given c_cov={wanted:g} beside c={partition.c:g}"
    spans = [[one.cov for one in attempts if one.cov] for attempts in found]
    least = [min(low for low, _ in own) for own in spans]
    if wanted < least[client]:
        why = f": the mean's shift alone changes the covariance by at least {least[client]:.3g}"
        needed = f"c_cov={_ceiling(max(least)):g} is the least beside this c, and a smaller c would do"
        return Told(asked, why, needed, why_rows=False)
    ends = [_floor(high) for own in spans for _, high in own]
    common = [end for end in ends if all(any(low <= end <= high for low, high in own) for own in spans)]
    if not common:
        return Told(asked, "", "no c_cov is reached by all clients beside this c; a smaller c may do")
    return Told(asked, "", f"c_cov={max(common):g} is reached by all clients")


def _floor(number: float) -> float:
    return math.floor(1000 * number) / 1000


def _ceiling(number: float) -> float:
    return math.ceil(1000 * number) / 1000
