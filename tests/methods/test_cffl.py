"""CFFL's laws (algorithms 2.5): each with sizes that differ between clients."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import toys
from attendance import attend, evaluated
from fedakd import trees
from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.methods.cffl import CFFL
from fedakd.methods.standalone import Standalone
from fedakd.training import Recipe
from scored import LIKE, PAPER, after, permutation, start, uploads

SIZES = [(9, 4), toys.TEN]

# the client


@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(
    "method", [CFFL(clip=0.003), CFFL(upload=0.37, clip=0.005, clip_by="norm")], ids=repr
)
def test_the_change_is_clipped_kept_and_its_largest_entries_are_sent(net, method, sizes):
    spec = toys.spec(method, sizes, net=net)
    turns = attend(spec, [range(len(sizes))] * 2)
    for k in range(len(sizes)):
        client = toys.client(spec, k, 2)
        had = method.receive(turns[0].kept[k], turns[1].messages[k])
        trained = client.fit({**had["model"], **had["buffers"]}, client.data)
        raw = trees.vector(trees.sub(client.parameters(trained), had["model"]))
        row = trees.vector(trees.sub(turns[1].kept[k]["model"], had["model"]))
        limited = raw.clamp(-0.003, 0.003) if method.clip_by == "value" else raw * 0.005 / raw.norm()
        assert not torch.allclose(raw, limited, atol=1e-5)
        assert torch.allclose(row, limited, atol=1e-7)
        sent = trees.vector(trees.unpack(turns[1].updates[k]["uploaded"], had["model"]))
        count = math.floor(method.upload * len(row))
        assert sent.count_nonzero() == count
        assert torch.allclose(sent[sent != 0], row[sent != 0], atol=1e-7)
        assert row[sent != 0].abs().min() >= row[sent == 0].abs().max() - 1e-7
        # what the clamp makes equal ranks by its size before, or the first tensors would take all
        assert raw[sent != 0].abs().min() >= raw[sent == 0].abs().max() - 1e-7
        assert turns[1].updates[k].keys() == {"uploaded"}  # running statistics stay with the client
        assert trees.equal(turns[1].kept[k]["buffers"], client.buffers(trained))


def test_a_short_change_is_not_made_longer():
    delta = {"w": torch.tensor([0.3, -0.4])}
    assert trees.equal(CFFL(clip=1.0, clip_by="norm").clipped(delta), delta)
    assert trees.equal(CFFL(clip=1.0).clipped(delta), delta)


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_a_reward_adds_what_was_earned_and_takes_back_the_own_upload(aggregate):
    method = CFFL(aggregate=aggregate, expel=0.0, clip=1.0, upload=0.5)
    spec = toys.spec(method, net="mlp64")
    turn = attend(spec, [range(3)])[0]
    state = turn.state
    for k, n in enumerate(toys.SIZES):
        own = turn.kept[k]["model"]
        upload = trees.vector(trees.unpack(turn.updates[k]["uploaded"], own))
        g = trees.vector(state["gradient"])
        count = math.floor(state["reputation"][k] / state["reputation"].max() * n / 23 * len(g) + 1e-9)
        earned = torch.zeros_like(g)
        order = {"sum": permutation(state, len(g)), "mean": g.abs().argsort(descending=True, stable=True)}
        chosen = order[aggregate][:count]
        earned[chosen] = g[chosen]
        rho = 1.0 if aggregate == "sum" else n / 23
        expected = trees.vector(own) + earned - rho * upload
        assert torch.allclose(trees.vector(evaluated(spec, turn, k)), expected, atol=1e-12)


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
@pytest.mark.parametrize(("net", "optimizer"), [("mlp64", "sgd"), ("mlp64", "adam"), ("cnn", "sgd")])
def test_one_client_that_uploads_everything_trains_as_if_alone(aggregate, net, optimizer):
    method = CFFL(upload=1.0, clip=1e9, aggregate=aggregate)
    recipe = Recipe(batch_size=8, lr=0.01 if optimizer == "adam" else 0.1, optimizer=optimizer)
    alone, ours = (
        toys.play(toys.spec(m, (13,), net, recipe), rounds=3) for m in (Standalone(restart=True), method)
    )
    kept = {**ours.kept[-1][0]["model"], **ours.kept[-1][0]["buffers"]}
    tolerance = 1e-12 if net == "mlp64" else 1e-4
    assert all(torch.allclose(kept[n], p, atol=tolerance) for n, p in alone.kept[-1][0]["model"].items())
    assert ours.result.rounds[-1].contributions == [1.0]


# the server


def reference_score(w, data) -> float:
    """The accuracy of the toy CNN, layer by layer, each normalised by its mean and variance on these rows."""
    x = data.x
    for block in ("body.0", "body.1"):
        z = F.conv2d(x, w[f"{block}.conv.weight"], w[f"{block}.conv.bias"], padding=1)
        mean, var = z.mean((0, 2, 3)), z.var((0, 2, 3))
        z = F.batch_norm(z, mean, var, w[f"{block}.norm.weight"], w[f"{block}.norm.bias"])
        x = F.max_pool2d(z.relu(), 2)
    hits = F.linear(x.flatten(1), w["head.weight"], w["head.bias"]).argmax(1) == data.y
    return hits.double().mean().item()


@pytest.mark.parametrize("sizes", SIZES)
def test_uploads_are_scored_on_the_servers_model_of_the_start_with_its_own_statistics(sizes):
    recipe = Recipe(batch_size=8, lr=0.02, epochs=4)
    spec = toys.spec(CFFL(upload=0.5, clip=1.0, expel=0.0), sizes, net="cnn", recipe=recipe)
    server, clients = toys.server(spec), range(len(sizes))
    turns = attend(spec, [clients] * 2)
    method, state = spec.method, turns[0].state
    scores = method.scores(server, state, turns[1].updates, state["reputable"].bool())
    stale = []  # with the statistics that each client keeps, which are of another model
    for k in clients:
        w = trees.add(state["model"], trees.unpack(turns[1].updates[k]["uploaded"], state["model"]))
        assert scores[k] == reference_score(w, server.validation)
        stale.append(server.accuracy({**w, **turns[1].kept[k]["buffers"]}, server.validation))
    assert scores.tolist() != stale
    w_0 = server.parameters(server.init(spec.seed))
    assert trees.equal(state["model"], trees.add(w_0, state["gradient"]))
    assert trees.equal(turns[1].state["model"], trees.add(state["model"], turns[1].state["gradient"]))


def test_the_expelled_are_not_scored():
    spec = toys.spec(CFFL(), net="cnn")
    updates = attend(spec, [range(3)])[0].updates
    server = toys.server(spec)
    state = spec.method.server_init(server, server.init(spec.seed))
    scores = spec.method.scores(server, state, updates, torch.tensor([True, False, True]))
    assert scores[1] == 0 < scores[0]


# reputations and the update


@pytest.mark.parametrize("growing", [True, False])
@pytest.mark.parametrize("fields", [{"horizon": 2.0}, {"sharpen": "before", "alpha": 1.5}])
def test_reputations_follow_the_formulas_round_by_round(fields, growing):
    method = CFFL(expel=0.0, growing=growing, **fields)
    state, c = start(method, (9, 4, 2)), [0.0] * 3 if method.sharpen == "after" else [1 / 3] * 3
    for number in range(4):
        a = [0.3 + 0.1 * number, 0.5, 0.7]
        alpha = method.alpha * (1 + min(number / method.horizon, 1) if growing else 1)
        x = [score / sum(a) for score in a]
        if method.sharpen == "after":
            c = [math.sinh(alpha * (0.8 * old + 0.2 * new)) for old, new in zip(c, x, strict=True)]
        else:
            y = [math.sinh(alpha * new) for new in x]
            c = [0.8 * old + 0.2 * new / sum(y) for old, new in zip(c, y, strict=True)]
        c = [share / sum(c) for share in c]
        state = after(method, state, a)
        assert state["reputation"].tolist() == pytest.approx(c)
        assert method.contributions(state).tolist() == pytest.approx(c)
        shares = [share / max(c) * n / 9 for share, n in zip(c, (9, 4, 2), strict=True)]
        assert state["quota"].tolist() == pytest.approx(shares)


@pytest.mark.parametrize("method", [CFFL(), PAPER], ids=["orig", "paper"])
@pytest.mark.parametrize("sizes", SIZES)
def test_reputations_sum_to_one_and_are_zero_for_the_expelled_alone(method, sizes):
    for turn in attend(toys.spec(method, sizes), [range(len(sizes))] * 4):
        c, reputable = turn.state["reputation"], turn.state["reputable"]
        assert c.sum().item() == pytest.approx(1)
        assert (c >= 0).all()
        assert torch.equal(c > 0, reputable > 0)


@pytest.mark.parametrize("method", [CFFL(), PAPER], ids=["orig", "paper"])
@pytest.mark.parametrize("clients", [2, 10])
def test_equal_scores_and_sizes_earn_equal_reputations_and_all_of_the_update(method, clients):
    state = after(method, start(method, [5] * clients), [0.4] * clients)
    assert state["reputation"].tolist() == pytest.approx([1 / clients] * clients)
    assert state["quota"].tolist() == pytest.approx([1] * clients)


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_update_is_of_the_reputable_and_who_leads_in_all_receives_it_whole(aggregate, sizes):
    method = CFFL(aggregate=aggregate)
    scores = [0.9] + [0.5] * (len(sizes) - 2) + [0.01]  # the last is expelled
    sizes = (max(sizes) + 1, *sizes[1:])
    state = after(method, start(method, sizes), scores)
    assert state["reputable"].tolist() == [1] * (len(sizes) - 1) + [0]
    assert state["reputation"].sum().item() == pytest.approx(1)
    rows = [trees.vector(trees.unpack(u["uploaded"], LIKE)) for u in uploads(len(sizes)).values()]
    weights = [1.0 if aggregate == "sum" else n / sum(sizes) for n in sizes]
    g = sum(w * row for w, row in zip(weights[:-1], rows[:-1], strict=True))
    assert torch.allclose(trees.vector(state["gradient"]), g)
    assert torch.allclose(trees.vector(trees.unpack(method.send(state, 0)["reward"], LIKE)), g)
    assert method.send(state, len(sizes) - 1) == {}
    assert method.send(start(method, sizes), 0) == {}  # nothing yet


@pytest.mark.parametrize("sizes", [(9, 4), tuple(reversed(toys.TEN))], ids=len)
def test_who_leads_in_reputation_and_rows_receives_all_and_everybody_else_less(sizes):
    method = CFFL(expel=0.0)
    state = after(method, start(method, sizes), [0.9] + [0.6] * (len(sizes) - 1))
    whole = trees.vector(state["gradient"])
    first, *rest = (
        trees.vector(trees.unpack(method.send(state, k)["reward"], LIKE)) for k in range(len(sizes))
    )
    assert state["reputable"].all()
    assert torch.equal(first, whole)
    assert all(len(one.nonzero()) < len(whole.nonzero()) for one in rest)
    assert len(rest[0].nonzero()) > 0


@pytest.mark.parametrize(("aggregate", "rho"), [("sum", 1.0), ("mean", 0.001)])
@pytest.mark.parametrize("others", [(), tuple(range(500, 900, 50))])
def test_a_quota_below_one_entry_is_nothing(others, aggregate, rho):
    method, sizes = CFFL(aggregate=aggregate, expel=0.0), (1000, 1, *others)
    state = after(method, start(method, sizes), [0.5] * len(sizes))
    message = method.send(state, 1)
    assert not trees.vector(trees.unpack(message["reward"], LIKE)).any()
    kept = {"model": LIKE, "uploaded": uploads(len(sizes))[1]["uploaded"], "buffers": {}}
    own = trees.vector(trees.unpack(kept["uploaded"], LIKE))
    assert torch.allclose(trees.vector(method.receive(kept, message)["model"]), -rho * own)


def test_quotas_by_classes():
    method = CFFL(quota_by="classes", expel=0.0)
    data = toys.rows(11, 3)
    few = {k: Examples(data.x, data.y % (3 - k // 2)) for k in range(3)}  # 3, 3 and 2 of the model's 4
    spec = toys.spec(method, data=few)
    turn = attend(spec, [range(3)])[0]
    c = turn.state["reputation"]
    counts = torch.tensor([len(set(rows.train.y.tolist())) for rows in spec.clients])
    assert counts.tolist() == [turn.updates[k]["classes"] for k in range(3)] == [3, 3, 2]
    assert torch.allclose(turn.state["quota"], c / c.max() * counts / 4)


# settings


def test_presets_are_settings_and_nonsense_is_refused():
    assert all(CFFL(**fields) != CFFL() for fields in CFFL.presets.values())
    wrong = {"upload": (0.0, 2.0), "clip": (0.0, -1.0), "alpha": (0.0, 1e3), "horizon": (0.0,)}
    wrong |= {"memory": (1.0, -0.1), "expel": (1.0, -0.1, float("nan"))}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(PlanError, match=f"cffl: {name} must be"):
                CFFL(**{name: value})
