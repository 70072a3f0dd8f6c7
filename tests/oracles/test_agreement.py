"""The methods agree with their numpy re-statements, which were written from the formulas alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial

import numpy as np
import pytest
import torch

import toys
from fedakd import trees
from fedakd.engine.base import Spec
from fedakd.methods.cffl import CFFL
from fedakd.methods.cgsv import CGSV
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.fedprox import FedProx
from fedakd.methods.scaffold import SCAFFOLD
from fedakd.training import Recipe
from fedakd.trees import Params
from oracles import cffl, cgsv, fedavg, fedprox, linear, scaffold

CLOSE = {"rtol": 0, "atol": 1e-9}  # both compute in double precision
ROUNDS, LR = 3, 0.3
FEDERATIONS = {"two": (9, 4), "three": toys.SIZES, "ten": toys.TEN}
PAPER_CFFL = CFFL(**CFFL.presets["paper"])


@pytest.fixture(params=FEDERATIONS.values(), ids=FEDERATIONS)
def setting(request) -> Callable[..., Spec]:
    recipe = Recipe(batch_size=4, lr=LR, epochs=2)
    return lambda method: toys.spec(method, request.param, "linear64", recipe, seed=3)


def flat(params: Params) -> np.ndarray:
    """Names sorted: the bias, then the weights row by row."""
    return trees.vector({name: params[name] for name in ("head.bias", "head.weight")}).numpy()


def oracle_clients(spec: Spec) -> list[linear.Client]:
    """The same rows, and the batches that the package draws in each round."""

    def batches(k: int, round: int) -> list[np.ndarray]:
        own = toys.client(spec, k, round)
        return [batch.rows.numpy() for batch in own.batches(own.data)]

    def restated(k: int) -> linear.Client:
        rows = spec.clients[k].train
        return linear.Client(rows.x.numpy().reshape(len(rows), -1), rows.y.numpy(), partial(batches, k))

    return [restated(k) for k in range(len(spec.clients))]


def played(spec: Spec, oracle: Callable[..., list[dict]], **hyper: object) -> tuple[toys.Played, list[dict]]:
    theta = flat(toys.server(spec).init(spec.seed))
    return toys.play(spec, ROUNDS), oracle(theta, oracle_clients(spec), ROUNDS, LR, **hyper)


def personal(spec: Spec, ours: toys.Played, round: int) -> np.ndarray:
    """Every client's own model on arrival of the last message, (K, D)."""
    method, state, kept = spec.method, ours.states[round], ours.kept[round]
    models = [method.models(method.receive(kept[k], method.send(state, k))) for k in sorted(kept)]
    return np.stack([flat(views["personal"]) for views in models])


@pytest.mark.parametrize("weigh_by", ["size", "uniform"])
def test_fedavg(setting, weigh_by):
    spec = setting(FedAvg(weigh_by=weigh_by))
    ours, theirs = played(spec, fedavg.run, weigh_by=weigh_by)
    for state, expected in zip(ours.states, theirs, strict=True):
        np.testing.assert_allclose(flat(state["model"]), expected["model"], **CLOSE)


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_fedprox(setting, mu):
    ours, theirs = played(setting(FedProx(mu=mu)), fedprox.run, mu=mu)
    for state, expected in zip(ours.states, theirs, strict=True):
        np.testing.assert_allclose(flat(state["model"]), expected["model"], **CLOSE)


@pytest.mark.parametrize("server_lr", [1.0, 0.4])
def test_scaffold(setting, server_lr):
    ours, theirs = played(setting(SCAFFOLD(server_lr=server_lr)), scaffold.run, server_lr=server_lr)
    for state, kept, expected in zip(ours.states, ours.kept, theirs, strict=True):
        np.testing.assert_allclose(flat(state["model"]), expected["model"], **CLOSE)
        np.testing.assert_allclose(flat(state["c"]), expected["c"], **CLOSE)
        own = [flat(kept[k]["c_k"]) for k in sorted(kept)]
        np.testing.assert_allclose(own, expected["c_k"], **CLOSE)


@pytest.mark.parametrize("beta", [1.0, 5.0])
@pytest.mark.parametrize(("layers", "mode"), [("each", "layer"), ("all", "global")])
def test_cgsv(setting, beta, layers, mode):
    method = CGSV(beta=beta, layers=layers)
    spec = setting(method)
    ours, theirs = played(spec, cgsv.run, alpha=method.alpha, beta=beta, gamma=method.gamma, mode=mode)
    for number, expected in enumerate(theirs):
        np.testing.assert_allclose(ours.states[number]["reputation"], expected["reputation"], **CLOSE)
        np.testing.assert_allclose(flat(ours.states[number]["gradient"]), expected["aggregate"], **CLOSE)
        np.testing.assert_allclose(personal(spec, ours, number), expected["models"], **CLOSE)


def order(spec: Spec, dimension: int, t: int) -> np.ndarray:
    """The permutation of a round, counted from 0, by the seed that the server draws from its own stream."""
    server = toys.server(spec)
    server.stream = (spec.seed, t + 1, 0)
    seed = int(torch.randint(2**53, (), generator=server.generator("download")))
    return torch.randperm(dimension, generator=torch.Generator().manual_seed(seed)).numpy()


@pytest.mark.parametrize(
    ("method", "random"),
    [
        (CFFL(aggregate="sum"), True),
        (CFFL(aggregate="sum", upload=0.37, clip=0.05, expel=0.6), True),
        (CFFL(download="random"), True),
        (CFFL(aggregate="sum", download="top", clip=1.0), False),  # a clamp would make entries of G tie
        (CFFL(clip=1.0), False),
        (CFFL(growing=False, clip=1.0), False),
        (PAPER_CFFL, False),
    ],
    ids=["sum", "expelling", "random mean", "top sum", "mean", "constant alpha", "paper"],
)
def test_cffl(setting, method, random):
    spec = setting(method)
    rows = toys.server(spec).validation
    only_ours = ("quota_by", "download")
    hyper = {one.name: getattr(method, one.name) for one in fields(method) if one.name not in only_ours}
    hyper |= {"x_val": rows.x.numpy().reshape(len(rows), -1), "y_val": rows.y.numpy()}
    dimension = len(flat(toys.server(spec).init(spec.seed)))
    hyper["order"] = partial(order, spec, dimension) if random else None
    ours, theirs = played(spec, cffl.run, **hyper)
    for number, expected in enumerate(theirs):
        state = ours.states[number]
        np.testing.assert_allclose(state["reputation"], expected["reputation"], **CLOSE)
        assert state["reputable"].nonzero().flatten().tolist() == list(expected["reputable"])
        np.testing.assert_allclose(flat(state["gradient"]), expected["aggregate"], **CLOSE)
        np.testing.assert_allclose(flat(state["model"]), expected["global"], **CLOSE)
        np.testing.assert_allclose(personal(spec, ours, number), expected["models"], **CLOSE)
