"""The loss profiles of FedAVE: rows per loss, who looks at how many rows, and their divergence."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import toys
from attendance import attend
from fedakd.method import ClientInfo, Server
from fedakd.methods.fedave import FedAVE
from fedakd.methods.profiles import divergence, kappa, likeness, profile


class Counting(Server):
    """A server that counts the rows it looks at."""

    rows = 0

    def logits(self, params, data):
        self.rows += len(data)
        return super().logits(params, data)


def test_the_server_looks_at_no_row_in_vain():
    spec = toys.spec(FedAVE(batch=4), (3, 9))  # 1 and 3 batches
    plain = toys.server(spec)
    server = Counting(plain.task, plain.recipe, clients=plain.clients, validation=plain.validation)
    attend(spec, [range(2)], server)
    assert server.rows == (4 + 12) + 2 * 20  # as many for each profile as it has partners, all for accuracies


POW = (837, 419, 279, 210, 168, 139, 119, 104, 92, 83)  # 2,450 rows under POW


def median_likeness(method: FedAVE, seed: int) -> float:
    """The median d_k of clients that differ in nothing but their number of rows, for an untrained model."""
    spec = toys.spec(method, (5,))
    sizes = torch.tensor(POW, dtype=torch.float64)
    server = Server(spec.task, spec.recipe, validation=toys.rows(500, 1000 * seed + 999))
    w, batch = server.init(seed), method.profile_batch(sizes)
    losses = [profile(server, w, toys.rows(n, 1000 * seed + n), batch) for n in POW]
    order = torch.arange(500)
    kappas = [kappa(server, w, server.validation, order, part, batch) for part in losses]
    return likeness(torch.tensor(kappas)).median().item()


def test_small_clients_leave_the_others_their_quota():
    """With 64 rows a loss the smallest have two losses and the smallest kappa by chance (review, 3)."""
    medians = [median_likeness(FedAVE(), seed) for seed in range(4)]
    assert min(medians) > 0.3
    by_chance = [median_likeness(FedAVE(batch=64), seed) for seed in range(4)]
    assert sum(by_chance) / 4 < 0.2


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [(POW, 3), ((9, 400), 1), ((24, 25), 1), ((50, 500), 2), ((5000, 1599), 63), ((5000, 9000), 64)],
)
def test_the_smallest_client_has_25_batches_where_it_has_the_rows(sizes, rows):
    server = toys.server(toys.spec(FedAVE()))
    server.clients = [ClientInfo(k, n) for k, n in enumerate(sizes)]
    for method, batch in ((FedAVE(), rows), (FedAVE(batch=7), 7)):
        state = method.server_init(server, server.init(0))
        assert method.send(state, 0)["batch"] == method.send(state, 1)["batch"] == batch
    assert min(sizes) < 25 or math.ceil(min(sizes) / rows) >= 25


@pytest.mark.parametrize("method", [FedAVE(), FedAVE(batch=5)], ids=["smallest", "5"])
def test_clients_and_server_use_the_batch_that_was_sent(method):
    spec = toys.spec(method, (60, 130))
    turn = attend(spec, [range(2)])[0]
    batch = method.batch or 2
    for k, n in enumerate((60, 130)):
        client = toys.client(spec, k)
        rows = client.data[torch.randperm(n, generator=client.generator("profile"))]
        z = client.logits(turn.messages[k]["model"], rows)
        losses = [F.cross_entropy(a, b) for a, b in zip(z.split(batch), rows.y.split(batch), strict=True)]
        assert torch.allclose(turn.updates[k]["losses"], torch.stack(losses))
    server = Counting(spec.task, spec.recipe, clients=toys.server(spec).clients, validation=toys.rows(500, 1))
    attend(spec, [range(2)], server)
    assert server.rows == batch * (math.ceil(60 / batch) + math.ceil(130 / batch)) + 2 * 500


def test_profiles_are_cut_to_the_shorter():
    server = toys.server(toys.spec(FedAVE(batch=4)))
    w, order = server.init(0), torch.arange(20)
    whole = profile(server, w, server.validation, 4)
    assert len(whole) == 5
    long, short = torch.linspace(1, 2, 9), torch.linspace(1, 2, 9)[:2]
    for losses, length in ((long, 5), (short, 2)):
        p, q = losses[:length] / losses[:length].sum(), whole[:length] / whole[:length].sum()
        expected = (p * (p / q).log()).sum().item()
        assert kappa(server, w, server.validation, order, losses, 4) == pytest.approx(expected, rel=1e-4)


def test_divergence_has_its_direction_and_its_edges():
    a, b = torch.tensor([1.0, 3.0]), torch.tensor([2.0, 2.0])
    assert divergence(a, b) == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert divergence(b, a) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert divergence(a, 7 * a) == 1e-8  # alike
    assert math.isnan(divergence(a[:1], b))  # one batch
    assert math.isfinite(divergence(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])))  # no loss at all
    assert math.isfinite(divergence(torch.zeros(2), torch.zeros(2)))
