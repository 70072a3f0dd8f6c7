"""The oracles against hand-made cases and the specification's invariants."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from oracles import cffl, cgsv, fedavg, fedprox, linear, masks, scaffold
from oracles.linear import Client, Integers, Matrix, Vector

FEATURES, CLASSES, LR, ROUNDS = 5, 3, 0.2, 6
DIMENSION = CLASSES * (FEATURES + 1)


def draw(rng: np.random.Generator, n: int) -> tuple[Matrix, Integers]:
    """Three noisy blobs."""
    y = rng.integers(0, CLASSES, n)
    return rng.normal(size=(n, FEATURES)) + 1.5 * np.eye(CLASSES, FEATURES)[y], y


def make_client(seed: int, n: int, batch: int = 8, epochs: int = 2) -> Client:
    """A client whose batches are a function of its seed and the round; the last one may be short."""
    x, y = draw(np.random.default_rng(seed), n)

    def batches(t: int) -> list[Integers]:
        rng = np.random.default_rng([seed, t])
        orders = [rng.permutation(n) for _ in range(epochs)]
        return [order[i : i + batch] for order in orders for i in range(0, n, batch)]

    return Client(x, y, batches)


@pytest.fixture
def clients() -> list[Client]:
    """Four clients of unequal sizes."""
    return [make_client(seed, n) for seed, n in enumerate([41, 26, 13, 7])]


@pytest.fixture
def theta0() -> Vector:
    """A small random start."""
    return 0.1 * np.random.default_rng(99).normal(size=DIMENSION)


def rules(**changes: Any) -> dict[str, Any]:
    """CFFL's original settings for MNIST but for `changes`: a sum, of which random entries are handed out."""
    x_val, y_val = draw(np.random.default_rng(7), 30)
    original = {
        "x_val": x_val,
        "y_val": y_val,
        "upload": 0.5,
        "clip": 0.1,
        "clip_by": "value",
        "alpha": 5.0,
        "growing": True,
        "horizon": ROUNDS,
        "memory": 0.8,
        "sharpen": "after",
        "expel": 1 / 3,
        "expel_by": "share",
        "aggregate": "sum",
        "order": lambda t: np.random.default_rng([11, t]).permutation(DIMENSION),
    }
    return original | changes


def paper(**changes: Any) -> dict[str, Any]:
    """CFFL's settings in the KDD paper but for `changes`."""
    told = {"clip": 5.0, "clip_by": "norm", "alpha": 1.0, "growing": False, "memory": 0.5}
    told |= {"sharpen": "before", "expel": 0.05, "expel_by": "constant", "aggregate": "mean", "order": None}
    return rules(**(told | changes))


def alone(theta: Vector, client: Client, rounds: range) -> Vector:
    """Plain SGD over the given rounds."""
    for t in rounds:
        theta = linear.sgd(theta, client, client.batches(t), LR)
    return theta


# The model and the masks


def test_gradient_is_the_finite_difference(theta0: Vector) -> None:
    x, y = draw(np.random.default_rng(3), 17)
    shifts = 1e-6 * np.eye(DIMENSION)
    numeric = [(linear.loss(theta0 + e, x, y) - linear.loss(theta0 - e, x, y)) / 2e-6 for e in shifts]
    np.testing.assert_allclose(linear.gradient(theta0, x, y), numeric, atol=1e-9)


def test_layout_is_bias_then_weight_by_rows() -> None:
    b, weight = linear.split(np.arange(8.0), features=3)
    assert b.tolist() == [0, 1]
    assert weight.tolist() == [[2, 3, 4], [5, 6, 7]]
    assert linear.flatten(b, weight).tolist() == list(range(8))


def test_loss_of_equal_logits_and_of_huge_ones() -> None:
    x, y = np.ones((2, 1)), np.array([0, 1])
    assert linear.loss(np.zeros(4), x, y) == pytest.approx(np.log(2))
    assert linear.loss(np.array([1e4, 0.0, 0.0, 0.0]), x, y) == pytest.approx(5e3)


def test_accuracy_gives_ties_to_the_lowest_class() -> None:
    assert linear.accuracy(np.zeros(DIMENSION), np.ones((4, FEATURES)), np.array([0, 0, 1, 2])) == 0.5


def test_one_step_of_sgd(theta0: Vector, clients: list[Client]) -> None:
    rows, client = np.array([3, 1]), clients[0]
    expected = theta0 - LR * linear.gradient(theta0, client.x[[1, 3]], client.y[[1, 3]])
    np.testing.assert_allclose(linear.sgd(theta0, client, [rows], LR), expected)


@pytest.mark.parametrize(
    ("m", "kept"),
    [(-1, [0, 0, 0, 0]), (0, [0, 0, 0, 0]), (1, [0, -2, 0, 0]), (2, [0, -2, 2, 0]), (9, [1, -2, 2, 1])],
)
def test_top_keeps_exactly_m_and_the_lower_index(m: int, kept: list[float]) -> None:
    assert masks.top(np.array([1.0, -2.0, 2.0, 1.0]), m).tolist() == kept


def test_layer_mode_rounds_up_in_each_tensor_and_global_mode_down_overall() -> None:
    v = np.array([0.1, 0.2, 5.0, -6.0, 7.0, 8.0, 1.0, 2.0])  # b has 2 entries, W 2 x 3
    assert masks.top_share_by_layer(v, 0.4, 3).tolist() == [0, 0.2, 0, -6, 7, 8, 0, 0]
    assert masks.top_share(v, 0.4).tolist() == [0, 0, 0, -6, 7, 8, 0, 0]


# FedAvg, FedProx and SCAFFOLD


def test_fedavg_first_round_by_hand(theta0: Vector, clients: list[Client]) -> None:
    trained = [alone(theta0, client, range(1, 2)) for client in clients]
    by_size = (41 * trained[0] + 26 * trained[1] + 13 * trained[2] + 7 * trained[3]) / 87
    np.testing.assert_allclose(fedavg.run(theta0, clients, 1, LR)[0]["model"], by_size)
    uniform = fedavg.run(theta0, clients, 1, LR, weigh_by="uniform")[0]["model"]
    np.testing.assert_allclose(uniform, np.mean(trained, axis=0))


def test_fedavg_of_one_client_is_plain_sgd(theta0: Vector, clients: list[Client]) -> None:
    model = fedavg.run(theta0, clients[:1], ROUNDS, LR)[-1]["model"]
    np.testing.assert_allclose(model, alone(theta0, clients[0], range(1, ROUNDS + 1)))


def test_fedprox_without_mu_is_fedavg(theta0: Vector, clients: list[Client]) -> None:
    ours = fedprox.run(theta0, clients, ROUNDS, LR, mu=0.0)
    theirs = fedavg.run(theta0, clients, ROUNDS, LR)
    for prox, avg in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(prox["model"], avg["model"])


def test_fedprox_pulls_towards_the_broadcast_model(theta0: Vector, clients: list[Client]) -> None:
    drifts = [
        np.linalg.norm(fedprox.run(theta0, clients, 1, LR, mu=mu)[0]["model"] - theta0)
        for mu in (0.0, 0.1, 1.0, 4.0)
    ]
    assert drifts == sorted(drifts, reverse=True)


def test_fedprox_second_step_by_hand(theta0: Vector) -> None:
    x, y = draw(np.random.default_rng(5), 6)
    client = Client(x, y, lambda t: [np.arange(3), np.arange(3, 6)])
    first = theta0 - LR * linear.gradient(theta0, x[:3], y[:3])
    second = first - LR * (linear.gradient(first, x[3:], y[3:]) + 0.7 * (first - theta0))
    np.testing.assert_allclose(fedprox.run(theta0, [client], 1, LR, mu=0.7)[0]["model"], second)


def test_scaffold_first_round_is_uniform_fedavg(theta0: Vector, clients: list[Client]) -> None:
    ours = scaffold.run(theta0, clients, 2, LR, server_lr=1.0)
    theirs = fedavg.run(theta0, clients, 2, LR, weigh_by="uniform")
    np.testing.assert_allclose(ours[0]["model"], theirs[0]["model"])
    assert not np.allclose(ours[1]["model"], theirs[1]["model"])


def test_scaffold_server_variate_is_the_mean(theta0: Vector, clients: list[Client]) -> None:
    for result in scaffold.run(theta0, clients, ROUNDS, LR, server_lr=0.7):
        np.testing.assert_allclose(result["c"], np.mean(result["c_k"], axis=0), atol=1e-12)


def test_scaffold_client_variate_is_the_mean_raw_gradient(theta0: Vector, clients: list[Client]) -> None:
    history = scaffold.run(theta0, clients, 3, LR)
    model, c, client = history[1]["model"], history[1]["c"], clients[1]
    y, seen, c_k = model, list[Vector](), history[1]["c_k"][1]
    for rows in client.batches(3):
        seen.append(linear.gradient(y, client.x[rows], client.y[rows]))
        y = y - LR * (seen[-1] - c_k + c)
    np.testing.assert_allclose(history[2]["locals"][1], y)
    np.testing.assert_allclose(history[2]["c_k"][1], np.mean(seen, axis=0), atol=1e-12)


def test_scaffold_of_identical_clients_is_fedavg(theta0: Vector, clients: list[Client]) -> None:
    ours = scaffold.run(theta0, [clients[0]] * 3, ROUNDS, LR)[-1]["model"]
    theirs = fedavg.run(theta0, [clients[0]] * 3, ROUNDS, LR)[-1]["model"]
    np.testing.assert_allclose(ours, theirs)


def test_scaffold_server_lr_scales_the_step(theta0: Vector, clients: list[Client]) -> None:
    whole = scaffold.run(theta0, clients, 1, LR)[0]["model"]
    half = scaffold.run(theta0, clients, 1, LR, server_lr=0.5)[0]["model"]
    np.testing.assert_allclose(half, (theta0 + whole) / 2)


# CGSV


@pytest.mark.parametrize("mode", ["layer", "global"])
def test_cgsv_invariants(theta0: Vector, clients: list[Client], mode: cgsv.Mode) -> None:
    before = [theta0] * 4
    for result in cgsv.run(theta0, clients, ROUNDS, LR, alpha=0.9, beta=1.0, gamma=0.5, mode=mode):
        r, u, best = result["reputation"], result["aggregate"], int(np.argmax(result["reputation"]))
        np.testing.assert_allclose(np.linalg.norm(result["uploads"], axis=1), 0.5, rtol=1e-6)
        assert r.sum() == pytest.approx(1.0)
        assert (r > 0).all()
        np.testing.assert_allclose(result["models"][best] - before[best], u, atol=1e-14)
        supports = [set(np.flatnonzero(result["rewards"][k])) for k in np.argsort(r)]
        assert all(small <= large for small, large in pairwise(supports))
        assert len(supports[0]) < DIMENSION
        before = result["models"]


def test_cgsv_with_huge_beta_gives_everybody_everything(theta0: Vector, clients: list[Client]) -> None:
    for result in cgsv.run(theta0, clients, ROUNDS, LR, alpha=0.9, beta=1e7, gamma=0.5):
        for model in result["models"]:
            np.testing.assert_array_equal(model, result["global"])


def test_cgsv_weights_are_sizes_then_reputations(theta0: Vector, clients: list[Client]) -> None:
    one, two = cgsv.run(theta0, clients, 2, LR, alpha=0.9, beta=1.0, gamma=0.5)
    np.testing.assert_allclose(one["aggregate"], np.array([41, 26, 13, 7]) / 87 @ np.array(one["uploads"]))
    np.testing.assert_allclose(two["aggregate"], one["reputation"] @ np.array(two["uploads"]))
    first = np.maximum(0.1 * one["cosine"], 1e-3)
    np.testing.assert_allclose(one["reputation"], first / first.sum())


def test_cgsv_clamps_after_mixing() -> None:
    r = cgsv.renew(np.array([0.5, 0.5]), np.array([1.0, -1.0]), np.ones(1), alpha=0.5)
    np.testing.assert_allclose(r, np.array([0.75, 0.001]) / 0.751)


def test_cgsv_of_identical_clients(theta0: Vector, clients: list[Client]) -> None:
    last = cgsv.run(theta0, [clients[0]] * 3, ROUNDS, LR, alpha=0.9, beta=1.0, gamma=0.5)[-1]
    np.testing.assert_allclose(last["reputation"], 1 / 3)
    np.testing.assert_array_equal(last["share"], 1.0)


def test_cgsv_with_no_update_keeps_everything(theta0: Vector, clients: list[Client]) -> None:
    last = cgsv.run(theta0, clients, 2, 0.0, alpha=0.9, beta=1.0, gamma=0.5)[-1]
    np.testing.assert_array_equal(last["reputation"], 0.0)
    np.testing.assert_array_equal(last["models"][0], theta0)


# CFFL


@pytest.mark.parametrize("sharpen", ["after", "before"])
def test_cffl_alone_is_plain_sgd(theta0: Vector, clients: list[Client], sharpen: str) -> None:
    hyper = rules(upload=1.0, clip=np.inf, sharpen=sharpen, aggregate="mean")
    for t, result in enumerate(cffl.run(theta0, clients[:1], ROUNDS, LR, **hyper), start=1):
        expected = alone(theta0, clients[0], range(1, t + 1))
        np.testing.assert_allclose(result["models"][0], expected, atol=1e-12)
        assert result["reputable"] == [0]


@pytest.mark.parametrize("hyper", [rules(), paper()], ids=["orig", "paper"])
def test_cffl_invariants(theta0: Vector, clients: list[Client], hyper: dict[str, Any]) -> None:
    w_g = theta0
    for result in cffl.run(theta0, clients, ROUNDS, LR, **hyper):
        c = result["reputation"]
        assert c.sum() == pytest.approx(1.0)
        assert np.flatnonzero(c).tolist() == result["reputable"]
        assert [np.count_nonzero(s) for s in result["uploads"]] == [DIMENSION // 2] * 4
        np.testing.assert_allclose(result["global"], w_g + result["aggregate"])
        assert max(result["quota"]) <= DIMENSION
        w_g = result["global"]


def test_cffl_first_round_of_the_original_by_hand(theta0: Vector, clients: list[Client]) -> None:
    hyper = rules(expel=0.0)
    (result,) = cffl.run(theta0, clients, 1, LR, **hyper)
    raw = [alone(theta0, client, range(1, 2)) - theta0 for client in clients]
    deltas = [np.clip(delta, -0.1, 0.1) for delta in raw]
    sent = [np.clip(masks.top(delta, 9), -0.1, 0.1) for delta in raw]
    a = np.array([linear.accuracy(theta0 + s, hyper["x_val"], hyper["y_val"]) for s in sent])
    raised = np.sinh(5 * 0.2 * a / a.sum())
    np.testing.assert_allclose(result["reputation"], raised / raised.sum())
    np.testing.assert_allclose(result["aggregate"], sum(sent))
    quota = np.floor(raised / raised.max() * np.array([41, 26, 13, 7]) / 41 * 18).astype(int)
    assert result["quota"] == quota.tolist()
    order = hyper["order"](0).tolist()
    for model, delta, s, m in zip(result["models"], deltas, sent, quota, strict=True):
        earned = np.zeros(DIMENSION)
        for entry in order[:m]:
            earned[entry] = sum(one[entry] for one in sent)
        np.testing.assert_allclose(model, theta0 + delta + earned - s)


def test_cffl_random_downloads_are_nested_and_exact() -> None:
    g, order = np.arange(1.0, 7.0), np.array([4, 0, 5, 2, 1, 3])
    assert cffl.first(g, 0, order).tolist() == [0] * 6
    assert cffl.first(g, 2, order).tolist() == [1, 0, 0, 0, 5, 0]
    assert cffl.first(g, 3, order).tolist() == [1, 0, 0, 0, 5, 6]
    assert cffl.first(g, 6, order).tolist() == g.tolist()


def test_cffl_sum_with_the_largest_entries_can_still_be_stated(theta0: Vector, clients: list[Client]) -> None:
    hyper = rules(expel=0.0, order=None)
    (result,) = cffl.run(theta0, clients, 1, LR, **hyper)
    kept = [np.clip(alone(theta0, client, range(1, 2)) - theta0, -0.1, 0.1) for client in clients]
    for k, m in enumerate(result["quota"]):
        gain = masks.top(result["aggregate"], m) - result["uploads"][k]
        np.testing.assert_allclose(result["models"][k], theta0 + kept[k] + gain)


def test_cffl_first_round_of_the_paper_by_hand(theta0: Vector, clients: list[Client]) -> None:
    hyper = paper(clip=0.2)
    (result,) = cffl.run(theta0, clients, 1, LR, **hyper)
    raw = [alone(theta0, client, range(1, 2)) - theta0 for client in clients]
    deltas = [0.2 * delta / np.linalg.norm(delta) for delta in raw]
    sent = [masks.top(delta, 9) for delta in deltas]
    a = np.array([linear.accuracy(theta0 + s, hyper["x_val"], hyper["y_val"]) for s in sent])
    raised = np.sinh(a / a.sum())
    np.testing.assert_allclose(result["reputation"], 0.125 + 0.5 * raised / raised.sum())
    n = np.array([41, 26, 13, 7])
    np.testing.assert_allclose(result["aggregate"], n / 87 @ np.array(sent))
    for k, m in enumerate(result["quota"]):
        kept = masks.top(result["aggregate"], m) - n[k] / 41 * sent[k]
        np.testing.assert_allclose(result["models"][k], theta0 + deltas[k] + kept)


def test_cffl_later_rounds_mix_the_old_reputations(theta0: Vector, clients: list[Client]) -> None:
    history = cffl.run(theta0, clients, ROUNDS, LR, **rules(expel=0.0))
    c = np.zeros(4)
    for t, result in enumerate(history):
        a = result["accuracy"]
        raised = np.sinh(5 * (1 + t / ROUNDS) * (0.8 * c + 0.2 * a / a.sum()))
        c = raised / raised.sum()
        np.testing.assert_allclose(result["reputation"], c)


def test_cffl_scores_with_the_global_model_of_the_round_s_start(
    theta0: Vector, clients: list[Client]
) -> None:
    hyper = paper()
    one, two = cffl.run(theta0, clients, 2, LR, **hyper)
    scored = [linear.accuracy(one["global"] + s, hyper["x_val"], hyper["y_val"]) for s in two["uploads"]]
    assert two["accuracy"].tolist() == scored


def test_cffl_expelled_client_trains_alone(theta0: Vector, clients: list[Client]) -> None:
    x, y = clients[1].x, (clients[1].y + 1) % CLASSES  # wrong labels score badly
    crowd = [clients[0], Client(x, y, clients[1].batches), clients[2]]
    history = cffl.run(theta0, crowd, ROUNDS, LR, **rules(upload=1.0, clip=np.inf, expel=0.8))
    out = next(t for t, result in enumerate(history) if 1 not in result["reputable"])
    model = theta0 if out == 0 else history[out - 1]["models"][1]
    for t in range(out, ROUNDS):
        model = alone(model, crowd[1], range(t + 1, t + 2))
        np.testing.assert_allclose(history[t]["models"][1], model, atol=1e-12)
        assert 1 not in history[t]["reputable"]
        assert history[t]["reputation"][1] == 0.0
        assert history[t]["reputation"].sum() == pytest.approx(1.0)


def test_cffl_expulsion_renormalises_and_moves_the_threshold() -> None:
    settings = cffl.Rules(**rules(expel=0.5))
    c, kept = cffl.expelled(np.array([0.45, 0.33, 0.12, 0.1]), [0, 1, 2, 3], settings)
    assert kept == [0, 1]  # the threshold was 0.5 / 4
    np.testing.assert_allclose(c, [0.45 / 0.78, 0.33 / 0.78, 0, 0])
    c, kept = cffl.expelled(np.array([0.8, 0.2, 0, 0]), kept, settings)
    assert kept == [0]  # and is 0.5 / 2 now
    np.testing.assert_array_equal(c, [1, 0, 0, 0])


def test_cffl_with_everybody_expelled(theta0: Vector, clients: list[Client]) -> None:
    last = cffl.run(theta0, clients, ROUNDS, LR, **rules(clip=np.inf, expel=2.0))[-1]
    assert last["reputable"] == []
    np.testing.assert_array_equal(last["global"], theta0)
    np.testing.assert_allclose(last["models"][3], alone(theta0, clients[3], range(1, ROUNDS + 1)))


def test_cffl_keeps_reputations_when_nobody_scores() -> None:
    c, nothing = np.array([0.7, 0.3, 0.0]), np.array([0.0, 0.0, np.nan])
    np.testing.assert_array_equal(cffl.renewed(c, nothing, [0, 1], 1.0, cffl.Rules(**rules())), c)


def test_cffl_alpha_grows_from_the_first_round() -> None:
    settings = cffl.Rules(**rules(horizon=10))
    assert [cffl.alpha_at(t, settings) for t in (0, 5, 10)] == [5.0, 7.5, 10.0]
    assert cffl.alpha_at(5, cffl.Rules(**rules(growing=False))) == 5.0


def test_cffl_mixing_orders() -> None:
    c, a, members = np.array([0.5, 0.5]), np.array([0.9, 0.3]), [0, 1]
    after = np.sinh(5 * (0.8 * c + 0.2 * np.array([0.75, 0.25])))
    got = cffl.renewed(c, a, members, 5.0, cffl.Rules(**rules()))
    np.testing.assert_allclose(got, after / after.sum())
    before = np.sinh(np.array([0.75, 0.25]))
    got = cffl.renewed(c, a, members, 1.0, cffl.Rules(**paper()))
    np.testing.assert_allclose(got, 0.25 + 0.5 * before / before.sum())


def test_cffl_top_reputation_and_top_size_receive_everything() -> None:
    n = np.array([10.0, 5.0, 1.0])
    assert cffl.quotas(np.array([0.6, 0.4, 0.0]), n, [0, 1], 18) == [18, 6, 0]
    assert cffl.quotas(np.array([0.6, 0.3, 0.1]), n, [0, 1, 2], 18) == [18, 4, 0]
