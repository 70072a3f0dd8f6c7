"""What happens on a logistic federation: the gap to the optimum, round by round, its rate and its floor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.stats import theilslopes

from fedakd.engine import base
from fedakd.engine.base import Spec, Trained
from fedakd.engine.serial import Serial
from fedakd.errors import FedakdError
from fedakd.examples import Examples
from fedakd.gaussians import Array
from fedakd.method import ClientInfo, Method, Server
from fedakd.methods.fedakd import FedAKD
from fedakd.rounds import Round, run
from fedakd.theory.logistic import Logistic, Logit, Rows, optimum, risk
from fedakd.training import Recipe, Task
from fedakd.trees import Tree

VISIBLE = 1e-3  # of the largest distance from the floor: what a rate is fitted to
ROUNDING = 1e-15  # of differences between risks


@dataclass(frozen=True, eq=False)
class Step:
    """One round of FedAKD in the paper's letters, clients in their order."""

    w_g: Array  # what the clients received
    w_k: tuple[Array, ...]  # local models after step 1
    selected: tuple[Rows, ...]  # step 2
    w_gk: tuple[Array, ...]  # what was sent after step 3


@dataclass(frozen=True, eq=False)
class Course:
    """A run on a problem whose optimum is known."""

    gaps: Array  # F(w_g) - F(w*) before the first round and after each
    steps: tuple[Step, ...]  # of FedAKD alone
    w_g: Array  # after the last round


@dataclass(frozen=True)
class Fit:
    """gap_t ~ floor + (gap_0 - floor) rate^t."""

    rate: float
    floor: float


def course(
    problem: Logistic,
    method: Method,
    recipe: Recipe,
    rounds: int,
    seed: int = 0,
    on_round: Callable[[], None] | None = None,
) -> Course:
    """The method as this package runs it; the recipe's weight decay is replaced by the problem's."""
    spec = specified(problem, method, recipe, seed)
    engine, pool = Listening(spec), problem.pool
    best = risk(optimum(pool, problem.decay), pool, problem.decay)
    models, steps = [np.zeros(problem.dims)], []  # Logit begins at 0

    def heard(record: Round, state: Tree) -> None:
        if record.failures:
            raise FedakdError(f"{next(iter(record.failures.values()))}; a smaller learning rate helps")
        if isinstance(method, FedAKD):
            steps.append(_step(problem, method, models[-1], engine))
        if "model" not in state:
            raise FedakdError(f"a gap is that of a global model, which {type(method).__name__} has none of")
        models.append(state["model"]["weight"].numpy())
        if on_round:
            on_round()

    run(method, engine, _server(spec), rounds=rounds, seed=seed, on_round=heard)
    gaps = [risk(w, pool, problem.decay) - best for w in models]
    return Course(np.array(gaps), tuple(steps), models[-1])


def full_batch(problem: Logistic, epochs: int, lr: float) -> Recipe:
    """Every step sees all of a client's rows, so `epochs` is the number of steps a round."""
    largest = max(len(rows) for rows in problem.clients)
    return Recipe(epochs=epochs, batch_size=largest, lr=lr, weight_decay=problem.decay)


def fitted(gaps: Array) -> Fit:
    """Rate and floor of a sequence of gaps.

    The floor is where the medians of the last three quarters point to if they close in geometrically, and
    else the last of them. The rate is the median slope of the logarithm of the distance from the floor, while
    that is above a thousandth of the largest; a gap that dips below its floor and rises to it has no rate.

    >>> fit = fitted(0.01 + 0.5 * 0.8 ** np.arange(60))
    >>> round(fit.rate, 6), round(fit.floor, 6)
    (0.8, 0.01)
    """
    floor = _limit(gaps)
    off = np.abs(gaps - floor)
    seen = np.flatnonzero(off > max(VISIBLE * off.max(), ROUNDING))
    dips = gaps[0] > floor > 2 * gaps.min()  # falls below its floor and rises to it
    if len(seen) < 3 or dips:
        return Fit(float("nan"), floor)
    return Fit(float(np.exp(theilslopes(np.log(off[seen]), seen)[0])), floor)


def _limit(gaps: Array) -> float:
    """Aitken's limit of three equally spaced medians; single rounds may be noisy.

    Gaps that are still falling have their floor below the last of them.
    """
    most = float(gaps[-1]) if gaps[-1] == gaps.min() else np.inf
    quarter = len(gaps) // 4
    if quarter == 0:
        return float(gaps[-1])
    a, b, c = (float(np.median(part)) for part in gaps[-3 * quarter :].reshape(3, quarter))
    closing = (c - b) / (b - a) if b != a else 1.0
    if not 0 < closing < 0.95:  # nothing closes in: noise, or too slow to tell where it will end
        return max(min(c, most), 0.0)
    return max(min(c + (c - b) * closing / (1 - closing), most), 0.0)


class Listening(Serial):
    """The serial engine, which remembers what its clients sent last."""

    updates: Mapping[int, Tree]

    def train(self, round: int, messages: Mapping[int, Tree]) -> Trained:
        trained = super().train(round, messages)
        self.updates = trained.updates
        return trained


def specified(problem: Logistic, method: Method, recipe: Recipe, seed: int) -> Spec:
    """The problem for an engine; the first rows stand for test rows, which nobody looks at."""
    own = Recipe(recipe.epochs, recipe.batch_size, recipe.lr, recipe.optimizer, problem.decay)
    parts = [Examples(torch.from_numpy(r.x), torch.from_numpy(r.y).long()) for r in problem.clients]
    clients = tuple(base.Rows(k, part, part[torch.arange(1)]) for k, part in enumerate(parts))
    return Spec(method, Task(partial(Logit, problem.dims)), own, seed, clients)


def _server(spec: Spec) -> Server:
    return Server(
        spec.task, spec.recipe, clients=[ClientInfo(one.id, len(one.train)) for one in spec.clients]
    )


def _step(problem: Logistic, method: FedAKD, w_g: Array, engine: Listening) -> Step:
    w_k = tuple(site.kept["local"]["weight"].numpy() for site in engine.sites.values())
    w_gk = tuple(engine.updates[k]["model"]["weight"].numpy() for k in engine.sites)
    pairs = zip(problem.clients, w_k, strict=True)
    selected = tuple(rows if method.select == "all" else _correct(rows, w) for rows, w in pairs)
    return Step(w_g, w_k, selected, w_gk)


def _correct(rows: Rows, w: Array) -> Rows:
    """The rows classified correctly; a logit of 0 is class 0, as argmax has it."""
    chosen = (rows.x @ w > 0) == (rows.y > 0)
    return Rows(rows.x[chosen], rows.y[chosen])
