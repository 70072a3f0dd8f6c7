"""Judging a model, teaching it by another, and fitting the fewest rows there can be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import update_bn

import nets
from fedakd import training, trees
from fedakd.distillation import distil
from fedakd.examples import Examples
from fedakd.models import factory
from fedakd.threads import one_thread
from fedakd.training import Batch, Bench, Recipe, Task, loaded, snapshot

CLASSES = 4


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def bench(model: str = "mlp") -> Bench:
    return Bench(Task(factory(model, (1, 8, 8), CLASSES)), Recipe(batch_size=8, lr=0.1), (0, 1, 2))


def rows(n: int = 30, seed: int = 0) -> Examples:
    rng = torch.Generator().manual_seed(seed)
    return Examples(torch.randn(n, 1, 8, 8, generator=rng), torch.randint(0, CLASSES, (n,), generator=rng))


# Judging


@pytest.mark.parametrize("model", ["cnn", "mlp"])
@pytest.mark.parametrize("threads", [2, 3])
def test_outputs_do_not_depend_on_the_number_of_threads(model: str, threads: int) -> None:
    one, data = bench(model), rows(4 * training.CHUNK + 5)
    params = one.init(0)
    with one_thread():
        expected = one.logits(params, data)
        many = replace(one, threads=threads)
        assert torch.equal(many.logits(params, data), expected)
        assert torch.equal(many.features(params, data), one.features(params, data))
        assert not many.logits(params, data).requires_grad
        assert torch.get_num_threads() == 1


@pytest.mark.parametrize("model", ["cnn", "mlp"])
@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 30])
def test_outputs_do_not_depend_on_the_borders_of_chunks(
    model: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, data = bench(model), rows(n)
    params = one.fit(one.init(0), rows(40))
    whole = one.logits(params, data), one.features(params, data)
    monkeypatch.setattr(training, "CHUNK", 7)
    parts = one.logits(params, data), one.features(params, data)
    assert whole[0].shape == (n, CLASSES)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_judging_is_the_model_in_evaluation_mode(model: str) -> None:
    one, data = bench(model), rows()
    params = one.fit(one.init(0), data)
    module = one.task.model()
    module.load_state_dict(params, strict=False)
    with torch.no_grad():
        expected = module.eval()(data.x)
        torch.testing.assert_close(one.features(params, data), module.body(data.x))  # type: ignore[operator]
    assert not one.logits(params, data).requires_grad
    torch.testing.assert_close(one.logits(params, data), expected)
    assert one.accuracy(params, data) == pytest.approx(accuracy_score(data.y, expected.argmax(1)))
    loss = log_loss(data.y, expected.double().softmax(1), labels=range(CLASSES))
    assert one.risk(params, data) == pytest.approx(loss, rel=1e-5)


def test_judging_changes_neither_parameters_nor_statistics() -> None:
    one, data = bench("cnn"), rows()
    params = one.init(0)
    state = torch.get_rng_state()
    first = one.logits(params, data)
    one.features(params, data), one.accuracy(params, data), one.risk(params, data)
    assert torch.equal(one.logits(params, data), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert trees.equal(params, bench("cnn").init(0))
    assert trees.equal(training.snapshot(one.module), params)
    assert one.gradients == 0


def test_accuracy_is_the_share_of_rows_where_the_largest_output_is_the_label() -> None:
    logits = torch.tensor([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0]])
    assert training.accuracy(logits, torch.tensor([1, 0, 0])) == pytest.approx(2 / 3, abs=1e-15)
    assert math.isnan(training.accuracy(logits[:0], torch.arange(0)))


# Distillation


class Given(nn.Module):
    """A model whose outputs are its inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_distillation_is_the_loss_plus_the_scaled_divergence(weight: float, temperature: float) -> None:
    teacher, z = torch.randn(12, CLASSES).double() * 3, torch.randn(12, CLASSES).double() * 3
    y, order = torch.arange(12) % CLASSES, torch.randperm(12)[:7]
    ours, theirs = z[order].clone().requires_grad_(), z[order].clone().requires_grad_()
    value = distil(teacher, weight, temperature, F.cross_entropy)(Given(), Batch(ours, y[order], order))
    q, p = (theirs / temperature).log_softmax(1), (teacher[order] / temperature).softmax(1)
    divergence = F.kl_div(q, p, reduction="batchmean")
    expected = F.cross_entropy(theirs, y[order]) + weight * temperature**2 * divergence
    torch.testing.assert_close(value, expected)
    value.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_a_student_like_its_teacher_has_nothing_to_learn(temperature: float) -> None:
    z = (torch.randn(10, CLASSES).double() * 5).requires_grad_()
    batch = Batch(z, torch.zeros(10, dtype=torch.long), torch.arange(10))
    value = distil(z.detach(), 2.0, temperature, lambda *_: torch.zeros(()))(Given(), batch)
    value.backward()
    assert value.item() == pytest.approx(0.0, abs=1e-12)
    torch.testing.assert_close(z.grad, torch.zeros_like(z), rtol=0, atol=1e-12)


def test_a_certain_teacher_is_a_label() -> None:
    teacher = torch.full((5, CLASSES), -1e4)
    y = torch.arange(5) % CLASSES
    teacher[torch.arange(5), y] = 1e4
    z = torch.randn(5, CLASSES)
    value = distil(teacher, 1.0, 1.0, lambda *_: torch.zeros(()))(Given(), Batch(z, y, torch.arange(5)))
    torch.testing.assert_close(value, F.cross_entropy(z, y))


def test_each_row_is_taught_by_its_own_teacher_row() -> None:
    one, data = bench(), rows()
    params, teacher = one.init(0), torch.randn(30, CLASSES) * 3

    def by_lookup(module: nn.Module, batch: Batch) -> Tensor:
        where = (data.x[None] == batch.x[:, None]).flatten(2).all(2).long().argmax(1)  # type: ignore[index]
        p, q = teacher[where].softmax(1), module(batch.x).log_softmax(1)
        return F.cross_entropy(module(batch.x), batch.y) + F.kl_div(q, p, reduction="batchmean")

    taught = one.fit(params, data, loss=distil(teacher, 1.0, 1.0, F.cross_entropy))
    torch.testing.assert_close(taught, one.fit(params, data, loss=by_lookup), rtol=1e-4, atol=1e-5)
    assert not trees.equal(taught, one.fit(params, data))


def test_distillation_teaches() -> None:
    one, data = bench(), rows(100)
    teacher = one.logits(one.fit(one.init(5), rows(100, seed=3), recipe=replace(one.recipe, epochs=20)), data)
    silent = distil(teacher, 1.0, 1.0, lambda z, y: 0 * z.sum())
    copied = one.fit(one.init(0), data, loss=silent, recipe=replace(one.recipe, epochs=40))
    agreement = (one.logits(copied, data).argmax(1) == teacher.argmax(1)).double().mean()
    assert float(agreement) > 0.9


# Few rows


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
        self.body = nn.Sequential(nn.Linear(144, 6), nn.BatchNorm1d(6), nn.ReLU())
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.features(x)))  # type: ignore[no-any-return]


def test_one_row_is_normalised_by_running_statistics_where_it_has_no_spread() -> None:
    one = Bench(Task(Flat), Recipe(lr=0.1))
    params = one.fit(one.init(0), rows())
    fitted = one.fit(params, rows(1))
    assert not torch.equal(fitted["head.weight"], params["head.weight"])
    assert all(bool(part.isfinite().all()) for part in fitted.values())
    assert torch.equal(fitted["body.1.running_mean"], params["body.1.running_mean"])
    assert not torch.equal(fitted["features.1.running_mean"], params["features.1.running_mean"])
    after = one.fit(params, rows())  # the layers normalise by the batch again
    assert trees.equal(after, Bench(Task(Flat), Recipe(lr=0.1)).fit(params, rows()))
    assert not torch.equal(after["body.1.running_mean"], params["body.1.running_mean"])


@pytest.mark.parametrize("model", ["cnn", "mlp", "cnn2", "linear"])
def test_one_row_can_be_learned(model: str) -> None:
    one, data = bench(model), rows(1)
    params, thrice = one.init(0), replace(one.recipe, epochs=3)
    assert one.risk(one.fit(params, data, recipe=thrice), data) < one.risk(params, data)


@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_no_rows_teach_nothing(model: str) -> None:
    one = bench(model)
    params = one.init(0)
    fitted = one.fit(params, rows(0))
    assert trees.equal(fitted, params)
    assert fitted["head.bias"] is not params["head.bias"]
    assert one.gradients == one.steps(rows(0)) == 0


def test_statistics_are_those_torch_estimates_on_the_same_batches() -> None:
    net, rows = nets.normed(), 700
    data = Examples(torch.randn(rows, 1, 8, 8), torch.randint(4, (rows,)))
    bench = Bench(Task(nets.normed), Recipe())
    params = snapshot(net)
    updated = bench.update_bn(params, data)
    order = torch.randperm(rows, generator=bench.generator("statistics"))
    update_bn([data.x[batch] for batch in torch.tensor_split(order, 3)], net)
    reference = snapshot(net)
    assert not torch.equal(params["body.2.running_var"], updated["body.2.running_var"])
    for name, value in reference.items():
        torch.testing.assert_close(updated[name], value)
    again = bench.update_bn(updated, data)
    assert all(torch.equal(updated[name], again[name]) for name in again)


def test_statistics_of_fused_layers_are_those_of_plain_ones() -> None:
    """With all rows in one batch the statistics are the rows' own means and variances."""
    task = Task(factory("cnn", (1, 28, 28), 10))
    bench = Bench(task, Recipe())
    data = Examples(torch.randn(40, 1, 28, 28), torch.randint(10, (40,)))
    updated = bench.update_bn(bench.init(0), data)
    first = loaded(bench.module, updated).body[0].conv(data.x)
    torch.testing.assert_close(updated["body.0.norm.running_mean"], first.mean((0, 2, 3)))
    torch.testing.assert_close(updated["body.0.norm.running_var"], first.var((0, 2, 3)))


def test_without_batch_norm_or_with_one_row_statistics_stay() -> None:
    for model, rows in (("linear", 5), ("cnn", 1)):
        bench = Bench(Task(factory(model, (1, 28, 28), 10)), Recipe())
        params = bench.init(0)
        assert (
            bench.update_bn(params, Examples(torch.randn(rows, 1, 28, 28), torch.zeros(rows).long()))
            is params
        )


def test_judging_after_an_update_of_statistics_uses_them_and_training_keeps_its_momentum() -> None:
    bench = Bench(Task(nets.normed), Recipe(batch_size=8))
    data = Examples(torch.randn(64, 1, 8, 8), torch.randint(4, (64,)))
    params = bench.init(0)
    fitted = bench.fit(params, data)
    bench.update_bn(params, data)
    assert all(torch.equal(one, bench.fit(params, data)[name]) for name, one in fitted.items())
