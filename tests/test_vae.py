"""The VAE's objective against torch.distributions, and that it learns what rows are like."""

from __future__ import annotations

import math
import pickle
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from fedakd import data
from fedakd.errors import DataError
from fedakd.examples import Examples
from fedakd.fitting import Epoch, Training, mean_loss
from fedakd.models.vae import VAE, divergence, negative_elbo, scaling, train_vae, vae_bench
from fedakd.seeds import seeded
from fedakd.training import Batch
from fedakd.trees import Params

DIGITS = data.load("digits")
TRAIN, VALIDATION = np.arange(0, 1200), np.arange(1200, 1797)
LONG = Training(epochs=40, patience=40)


@cache
def learned(dims: int = 10, seed: int = 0) -> tuple[Params, tuple[Epoch, ...]]:
    return train_vae(DIGITS.examples(TRAIN), DIGITS.examples(VALIDATION), dims=dims, seed=seed, how=LONG)


def latent(params: Params, rows: np.ndarray, dims: int = 10) -> np.ndarray:
    data = DIGITS.examples(rows)
    return vae_bench(data, dims).logits(params, data).numpy()


def some_vae(features: int = 12, dims: int = 3) -> VAE:
    torch.manual_seed(1)
    model = VAE(features, dims, hidden=8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
        model.centre.normal_()
        model.spread.uniform_(0.5, 2)
    return model


# The objective


@pytest.mark.parametrize("dims", [1, 4, 100])
def test_the_divergence_is_that_of_torch(dims: int) -> None:
    torch.manual_seed(0)
    mean, log_variance = torch.randn(7, dims).double(), torch.randn(7, dims).double()
    ours = Independent(Normal(mean, (log_variance / 2).exp()), 1)
    prior = Independent(Normal(torch.zeros_like(mean), torch.ones_like(mean)), 1)
    torch.testing.assert_close(divergence(mean, log_variance), kl_divergence(ours, prior))


def test_the_surprise_is_minus_the_log_of_a_normal_density() -> None:
    model = some_vae()
    row, z = torch.randn(5, 12), torch.randn(5, 3)
    density = Independent(Normal(model.decoder(z), model.log_deviation.exp()), 1)
    torch.testing.assert_close(model.surprise(row, z), -density.log_prob(row))


def test_the_negative_elbo_is_surprise_and_divergence_with_noise_of_torchs_stream() -> None:
    model = some_vae()
    x = torch.randn(6, 3, 4)
    with seeded(5):
        value = negative_elbo(model, Batch(x, torch.zeros(6), torch.arange(6)))
    with seeded(5):
        noise = torch.randn(6, 3)
    row = (x.reshape(6, 12) - model.centre) / model.spread
    mean, log_variance = model.encoder(row)
    posterior = Normal(mean, (log_variance / 2).exp())
    likelihood = Normal(model.decoder(mean + noise * posterior.stddev), model.log_deviation.exp())
    kl = kl_divergence(posterior, Normal(torch.zeros(3), torch.ones(3))).sum(1)
    torch.testing.assert_close(value, (kl - likelihood.log_prob(row).sum(1)).mean())


def test_the_elbo_is_below_the_exact_evidence_and_meets_it_at_the_exact_posterior() -> None:
    """One latent and one feature, all linear: x ~ N(0, w^2 + s^2), z | x is normal with known moments."""
    w, s = 0.8, 0.6
    model = VAE(1, 1, hidden=2)
    gain, noise = w / (w * w + s * s), math.log(s * s / (w * w + s * s))  # of the posterior
    with torch.no_grad():  # relu(x) - relu(-x) = x
        pair = torch.tensor([[1.0], [-1.0]])
        model.encoder.hidden[0].weight.copy_(pair)
        model.decoder[0].weight.copy_(pair)
        model.encoder.mean.weight.copy_(gain * pair.T)
        model.decoder[2].weight.copy_(w * pair.T)
        model.encoder.log_variance.weight.zero_()
        for layer in (model.encoder.hidden[0], model.encoder.mean, model.decoder[0], model.decoder[2]):
            layer.bias.zero_()
        model.encoder.log_variance.bias.fill_(noise)
        model.log_deviation.fill_(math.log(s))
    x = torch.randn(20_000, 1)
    batch = Batch(x, torch.zeros(len(x)), torch.arange(len(x)))
    evidence = float(-Normal(0.0, math.hypot(w, s)).log_prob(x).mean())
    with torch.no_grad():
        assert float(negative_elbo(model, batch)) == pytest.approx(evidence, abs=0.02)
        model.encoder.log_variance.bias.add_(1.0)
        assert float(negative_elbo(model, batch)) > evidence + 0.1


def test_gradients_reach_every_parameter() -> None:
    model = some_vae()
    negative_elbo(model, Batch(torch.randn(6, 12), torch.zeros(6), torch.arange(6))).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


# The scale


def test_columns_of_a_table_are_standardised_one_by_one_and_constants_left() -> None:
    torch.manual_seed(0)
    x = torch.randn(500, 3) * torch.tensor([1.0, 1e3, 0.0]) + torch.tensor([0.0, 1e5, 7.0])
    model = VAE(3, 2)
    model.load_state_dict(model.state_dict() | scaling(x))
    z = model.standard(x)
    torch.testing.assert_close(z.mean(0), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close(z.std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-3, rtol=0)


def test_pixels_share_one_scale() -> None:
    x = torch.rand(200, 1, 4, 4) * torch.linspace(0, 1, 4)
    found = scaling(x)
    assert len(found["spread"].unique()) == 1
    total = ((x.flatten(1) - found["centre"]) / found["spread"]).square().mean()
    assert float(total) == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("shape", [(5,), (1, 8, 8), (3, 6, 4), (2, 3)])
def test_rows_may_have_any_shape(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    rows = Examples(torch.randn(40, *shape), torch.zeros(40, dtype=torch.int64))
    params, history = train_vae(rows, rows, dims=4, how=Training(epochs=2))
    assert vae_bench(rows, 4).logits(params, rows).shape == (40, 4)
    assert len(history) == 3


def test_a_table_with_wild_values_is_learned_without_failing() -> None:
    rng = torch.Generator().manual_seed(0)
    x = (3 * torch.randn(600, 6, generator=rng)).exp()  # the largest is some 30 deviations away
    rows = Examples(x, torch.zeros(600))
    _, history = train_vae(rows, rows, dims=3, how=Training(epochs=20, patience=20))
    assert history[-1].validation < history[0].validation
    assert all(math.isfinite(epoch.train) for epoch in history[1:])


# Learning


def test_the_validation_loss_falls_well_below_that_of_the_start() -> None:
    params, history = learned()
    start, best = history[0].validation, min(epoch.validation for epoch in history)
    assert best < start - 20  # nats a row
    validation = DIGITS.examples(VALIDATION)
    bench = vae_bench(validation, 10)
    assert mean_loss(bench, params, validation, negative_elbo) == best


def test_reconstructions_are_nearer_than_the_mean_row() -> None:
    params, _ = learned()
    model = VAE(64, 10)
    model.load_state_dict(params)
    x = DIGITS.examples(VALIDATION).x
    assert isinstance(x, Tensor)
    row = model.standard(x)
    with torch.no_grad():
        error = (row - model.decoder(model(x))).square().mean()
    assert error < 0.5 * row.square().mean()


def test_latent_means_tell_classes_apart() -> None:
    params, _ = learned()
    a, b = latent(params, TRAIN), latent(params, VALIDATION)
    probe = LogisticRegression(max_iter=500).fit(a, DIGITS.y[TRAIN])
    assert probe.score(b, DIGITS.y[VALIDATION]) > 0.8
    zeros_and_ones = VALIDATION[DIGITS.y[VALIDATION] < 2]
    pair = LogisticRegression(max_iter=500).fit(a[DIGITS.y[TRAIN] < 2], DIGITS.y[TRAIN][DIGITS.y[TRAIN] < 2])
    assert pair.score(latent(params, zeros_and_ones), DIGITS.y[zeros_and_ones]) > 0.97


def test_more_dimensions_describe_rows_better() -> None:
    losses = [min(epoch.validation for epoch in learned(dims)[1]) for dims in (1, 3, 10)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[2] + 3


def test_a_seed_gives_the_same_bits_and_another_seed_others() -> None:
    how = Training(epochs=2)
    rows = DIGITS.examples(TRAIN[:200]), DIGITS.examples(VALIDATION[:50])
    torch.manual_seed(1)
    one, history = train_vae(*rows, dims=4, how=how)
    torch.manual_seed(2)
    torch.set_num_threads(2)
    again, history_again = train_vae(*rows, dims=4, how=how)
    other, _ = train_vae(*rows, dims=4, seed=1, how=how)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert history[1:] == history_again[1:]
    apart = (one["encoder.mean.weight"] - other["encoder.mean.weight"]).abs().max()
    assert apart > 0.03  # in four steps at a rate of 0.001 they cannot have parted so far: they began apart


def test_labels_play_no_part() -> None:
    train, validation = DIGITS.examples(TRAIN[:100]), DIGITS.examples(VALIDATION[:50])
    blind = Examples(train.x, torch.zeros_like(train.y))
    one, other = (train_vae(rows, validation, dims=3, how=Training(epochs=1))[0] for rows in (train, blind))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_its_maker_travels_to_workers() -> None:
    make = pickle.loads(pickle.dumps(vae_bench(DIGITS.examples(TRAIN[:2]), 7).task.model))
    assert make()(torch.rand(2, 1, 8, 8)).shape == (2, 7)


def test_rows_by_name_or_with_holes_are_refused() -> None:
    y = torch.zeros(4, dtype=torch.int64)
    named = Examples({"a": torch.zeros(4, 2)}, y)
    with pytest.raises(DataError, match="one tensor, got 1 by name; use the features of an encoder"):
        train_vae(named, named)
    holes = Examples(torch.full((4, 2), math.nan), y)
    with pytest.raises(DataError, match="finite rows"):
        train_vae(holes, holes)
