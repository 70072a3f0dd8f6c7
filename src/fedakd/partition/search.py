"""What was found when directions were tried for a client, and what is said when none of them will do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fedakd.partition.contract import Features
from fedakd.partition.guard import ENOUGH, HEALTHY, LEAST, Guard, carries
from fedakd.partition.tilt import Tilt

if TYPE_CHECKING:
    from fedakd.partition.shift import GaussianShift


@dataclass(frozen=True, eq=False)
class Attempt:
    """One direction: the weights that do what was asked, or none, and what could have been asked."""

    tilt: Tilt | None
    direction: Features  # in which the mean was to go
    guard: Guard
    effective: float  # rows of the train pool
    test_effective: float
    reach: float = math.nan  # the largest c along it, or the largest KL if that was asked
    cov: tuple[float, float] | None = None  # the least and the largest c_cov beside c

    @property
    def healthy(self) -> bool:
        """Whether no other direction needs to be tried."""
        carried = carries(self.test_effective, self.guard.needed)
        return self.tilt is not None and self.effective >= HEALTHY * self.guard.size and carried

    @property
    def merit(self) -> tuple[float, float]:
        """Effective test rows count up to what is needed of them, then effective training rows."""
        carried = carries(self.test_effective, self.guard.needed)
        return 1.0 if carried else self.test_effective / self.guard.needed, self.effective


def attempt(
    tilt: Tilt | None,
    direction: Features,
    guard: Guard,
    reach: float = math.nan,
    cov: tuple[float, float] | None = None,
) -> Attempt:
    """The attempt that found these weights, or none."""
    left = (guard.effective(tilt), guard.test_effective(tilt)) if tilt else (0.0, 0.0)
    return Attempt(tilt, direction, guard, *left, reach, cov)


@dataclass(frozen=True, eq=False)
class Choice:
    """The weights found for one client; `furthest` is the largest reach of all directions tried."""

    tilt: Tilt
    direction: Features
    guard: Guard
    effective: float
    test_effective: float
    tried: int
    reach: float
    furthest: float
    cov_reach: float

    @property
    def carried(self) -> bool:
        """Whether enough effective test rows are left; only force accepts fewer."""
        return carries(self.test_effective, self.guard.needed)


def choice(attempts: Sequence[Attempt]) -> Choice | None:
    """The attempt that leaves most effective rows, if any did what was asked."""
    if all(one.tilt is None for one in attempts):
        return None
    best = max((one for one in attempts if one.tilt), key=lambda one: one.merit)
    assert best.tilt is not None
    furthest = max(one.reach for one in attempts)
    cov_reach = best.cov[1] if best.cov else math.nan
    left = (best.guard, best.effective, best.test_effective)
    return Choice(best.tilt, best.direction, *left, len(attempts), best.reach, furthest, cov_reach)


def refusal(partition: GaussianShift, found: Sequence[Sequence[Attempt]], dims: int) -> str:
    """Which client cannot have what was asked, why, and what all clients could have."""
    failed = {k: attempts for k, attempts in enumerate(found) if choice(attempts) is None}
    by_mean = {k: own for k, own in failed.items() if not any(one.cov for one in own)}
    client = next(iter(by_mean or failed))
    told = _mean(partition, by_mean, client) if by_mean else _covariance(partition, found, client)
    sparing = told.why_rows and partition.replacement and not partition.force
    thin = _least(found[client][0].guard) if sparing else ""
    forced = ", and force=True accepts fewer effective rows" if sparing else ""
    count = len(found[client])
    tried = f"{count} direction{'s' * (count > 1)} in {dims} dims"
    return f"client {client} cannot be {told.asked}{thin}{told.why} ({tried} tried); {told.works}{forced}"


def _least(guard: Guard) -> str:
    rows = f" with an effective size of at least {LEAST:.0%} of its {guard.size} rows"
    return rows + (f" and at least {guard.needed:g} effective test rows" if guard.needed else "")


def warnings(choices: Sequence[Choice]) -> list[str]:
    """Warnings that name the clients of too few effective rows, to train on and to be judged on."""
    return [*_thin(choices), *_uncarried(choices)]


def _thin(choices: Sequence[Choice]) -> list[str]:
    shares = {k: one.effective / one.guard.size for k, one in enumerate(choices)}
    thin = [k for k, share in shares.items() if share < HEALTHY]
    few = f"effective size below {HEALTHY:.0%} of their rows (lowest {min(shares.values()):.1%})"
    return [f"clients {_named(thin)}: {few}, so few rows repeat often"] if thin else []


def _uncarried(choices: Sequence[Choice]) -> list[str]:
    rows = {k: one.test_effective for k, one in enumerate(choices) if not one.carried}
    if not rows:
        return []
    asked = f"less than {ENOUGH:.0f} and than half of their test rows"
    few = f"judged on few effective test rows, {asked} (lowest {min(rows.values()):.1f})"
    return [f"clients {_named([*rows])}: {few}; accepted by force, so their scores carry little"]


def _named(clients: Sequence[int]) -> str:
    return ", ".join(map(str, clients))


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
        best = max(failed[client], key=lambda one: one.merit)
        left = f"an effective size of {best.effective:.3g}"
        left += f" and {best.test_effective:.3g} effective test rows" if best.guard.needed else ""
        works = "a smaller c or fewer dims would do; mode=calibrated tells the largest c"
        return Told(asked, f": mode={partition.mode} leaves {left}", works)
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
