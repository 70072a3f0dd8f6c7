"""Whether a run's scores have stopped rising: a verdict on a run that is still learning is about its length.

The rule: over the last quarter of the rounds, but at least the last four judged rounds, a straight line is
fitted to the mean score by least squares. If the line rises by less than 0.5 points over these rounds, the
run has converged. With fewer than four judged rounds nothing is known.

`docs/convergence.md` shows how often runs that are called converged change when they go on.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal, Protocol, TypeAlias

import numpy as np

State = Literal["converged", "not converged", "not known"]
Curve: TypeAlias = Sequence[tuple[int, float]]  # (round, mean score), in the order of the rounds

LIMIT = 0.005  # a rise of 0.5 points, as a fraction
LEAST = 4  # judged rounds that a line is fitted to


class JudgedRound(Protocol):
    """The part of a `fedakd.rounds.Round` that convergence depends on."""

    @property
    def number(self) -> int: ...
    @property
    def scores(self) -> dict[str, dict[int, float]]: ...


@dataclass(frozen=True)
class Convergence:
    """What the last rounds of a run show."""

    state: State
    rise: float  # of the fitted line over the window, 0.005 is 0.5 points; nan if not known
    rounds: int  # length of the window in rounds; 0 if not known

    @property
    def unstable(self) -> bool:
        """Whether the score fell by more than the rule lets it rise; such a run counts as converged."""
        return self.rise < -LIMIT

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON; a rise that is not known is None."""
        return {**asdict(self), "rise": None if math.isnan(self.rise) else self.rise}

    def sentence(self, command: str | None = None) -> str:
        """The state in words, and the command that goes on where the run has not converged.

        >>> Convergence("not converged", 0.013, 5).sentence("fedakd ...")
        'not converged: the last 5 rounds still gained 1.3 points; go on with: fedakd ...'
        >>> Convergence("converged", -0.02, 5).sentence()
        'converged, but unstable: the last 5 rounds lost 2.0 points'
        """
        if self.state == "not known":
            text = f"convergence is not known: that takes at least {LEAST} judged rounds"
        elif self.state == "not converged":
            text = f"not converged: the last {self.rounds} rounds still gained {100 * self.rise:.1f} points"
        elif self.unstable:
            return (
                f"converged, but unstable: the last {self.rounds} rounds lost {-100 * self.rise:.1f} points"
            )
        else:
            return (
                f"converged: the last {self.rounds} rounds changed the score by {100 * self.rise:+.1f} points"
            )
        return f"{text}; go on with: {command}" if command else text


def convergence(curve: Curve, rounds: int) -> Convergence:
    """The state of a run that has played so many rounds, from the mean scores of its judged ones.

    >>> convergence([(number, 0.9) for number in range(1, 21)], rounds=20)
    Convergence(state='converged', rise=0.0, rounds=5)
    >>> convergence([(1, 0.1), (2, 0.2), (3, 0.3)], rounds=3).state
    'not known'
    """
    judged = [(number, score) for number, score in curve if math.isfinite(score)]
    if len(judged) < LEAST:
        return Convergence("not known", math.nan, 0)
    late = [point for point in judged if point[0] > rounds - rounds // 4]
    window = late if len(late) >= LEAST else judged[-LEAST:]
    length = window[-1][0] - window[0][0] + 1
    rise = slope(window) * length
    return Convergence("converged" if rise < LIMIT else "not converged", rise, length)


def slope(curve: Curve) -> float:
    """The slope of the line that fits the points best by least squares."""
    number, score = np.array(curve, dtype=np.float64).T
    centred = number - number.mean()
    return float(centred @ (score - score.mean()) / (centred @ centred))


def last_rounds(rounds: int) -> int:
    """How many rounds at the end of a run are all judged, so that its convergence is known.

    >>> last_rounds(40), last_rounds(10), last_rounds(3)
    (10, 4, 0)
    """
    return max(rounds // 4, LEAST) if rounds >= LEAST else 0


def score_curve(rounds: Sequence[JudgedRound], view: str) -> list[tuple[int, float]]:
    """The mean accuracy over clients after each judged round, clients without a score left out."""
    curve = []
    for record in rounds:
        scores = [v for v in record.scores.get(f"{view}/accuracy", {}).values() if math.isfinite(v)]
        if scores:
            curve.append((record.number, fmean(scores)))
    return curve


def mean_curve(curves: Sequence[Curve]) -> list[tuple[int, float]]:
    """The mean over seeds, at the rounds where every seed has a score.

    >>> mean_curve([[(1, 0.25), (2, 0.5)], [(2, 1.0)]])
    [(2, 0.75)]
    """
    seeds = [{number: score for number, score in curve if math.isfinite(score)} for curve in curves]
    common = sorted(set.intersection(*map(set, seeds))) if seeds else []
    return [(number, fmean(seed[number] for seed in seeds)) for number in common]


def continue_command(folder: Path | str, rounds: int) -> str:
    """The command that gives a run twice its rounds.

    >>> continue_command("runs/my run", 20)
    "fedakd run --resume 'runs/my run' --rounds 40"
    """
    return shlex.join(["fedakd", "run", "--resume", str(folder), "--rounds", str(2 * rounds)])
