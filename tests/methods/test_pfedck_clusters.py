"""How pFedCK clusters clients: by the direction of what their training changed."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toys
from fedakd import trees
from fedakd.methods.clustering import grouped
from fedakd.methods.pfedck import PFedCK


def by_merging(rows: Tensor, clusters: int) -> set[frozenset[int]]:
    """The two groups with the smallest mean of 1 - cosine become one, until so many are left."""
    cosine = F.cosine_similarity(rows[:, None], rows[None], dim=2)
    groups = [(k,) for k in range(len(rows))]
    while len(groups) > clusters:
        a, b = max(combinations(groups, 2), key=lambda two: cosine[list(two[0])][:, list(two[1])].mean())
        groups = [group for group in groups if group not in (a, b)] + [a + b]
    return {frozenset(group) for group in groups}


@pytest.mark.parametrize("clusters", [1, 2, 3, 5, 10])
def test_clusters_are_those_of_average_linkage_and_length_does_not_matter(clusters):
    for seed in range(4):
        rng = torch.Generator().manual_seed(seed)
        rows = torch.randn(10, 4, generator=rng, dtype=torch.float64)
        found = grouped(rows * torch.logspace(-6, 3, 10, dtype=torch.float64)[:, None], clusters)
        assert {frozenset(k for k in range(10) if found[k] == c) for c in found} == by_merging(rows, clusters)


def test_no_change_is_at_right_angles_to_every_other():
    rows = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.3, 0.95], [0.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    for clusters in (3, 9):
        found = grouped(rows, clusters)
        assert found[0] == found[3]
        assert found[0] not in found[1:3] + found[4:]
    a, b, still = grouped(rows[:3].flip(0), 2)  # cosine 0.3
    assert a == b != still
    assert grouped(rows[:1], 3) == grouped(rows[1:2], 1) == [1]


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_clients_are_clustered_by_what_their_training_changed(net):
    """Not by where their models are, nor by running statistics."""
    method = PFedCK(clusters=2)
    server = toys.server(toys.spec(method, net=net))
    near, far = server.init(1), trees.scale(server.init(2), 100.0)
    state = {**method.server_init(server, near), "models": {"0": near, "1": far}}
    state["cluster"] = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    one_way, other_way = server.parameters(server.init(3)), server.parameters(server.init(4))
    updates = {
        k: {"shared": {**trees.move(start, change), **trees.scale(server.buffers(start), 10.0**k)}}
        for k, (start, change) in enumerate([(near, one_way), (far, one_way), (far, other_way)])
    }
    a, b, c = method.server_update(server, state, updates)["cluster"].tolist()
    assert a == b != c
