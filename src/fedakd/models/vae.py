"""A variational autoencoder: rows of any shape as points of a latent space where they are roughly normal.

The likelihood is normal with one variance for all features, which is learned with the rest. That suits any
numbers, where a Bernoulli likelihood asks for [0, 1], and it weighs reconstruction against divergence by
itself. Rows are brought to a common scale with the train rows' mean and deviation, which are stored with the
parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from fedakd.errors import DataError
from fedakd.examples import Examples
from fedakd.fitting import Epoch, Training, trained
from fedakd.training import Batch, Bench, Recipe, Task
from fedakd.trees import Params

RECIPE = Recipe(batch_size=128, lr=1e-3, optimizer="adam")
HIDDEN = 400  # neurons between row and latent, and between latent and row
TRAINING = Training(epochs=30, patience=3)


class VAE(nn.Module):
    """`encoder` gives mean and log variance of a standardised row's latent, `decoder` the row's mean."""

    centre: Tensor
    spread: Tensor

    def __init__(self, features: int, dims: int = 100, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.encoder = Encoder(features, dims, hidden)
        self.decoder = nn.Sequential(nn.Linear(dims, hidden), nn.ReLU(), nn.Linear(hidden, features))
        self.log_deviation = nn.Parameter(torch.zeros(()))
        self.register_buffer("centre", torch.zeros(features))
        self.register_buffer("spread", torch.ones(features))

    def standard(self, x: Tensor) -> Tensor:
        """The rows, flat and on a common scale."""
        return (x.flatten(1) - self.centre) / self.spread

    def forward(self, x: Tensor) -> Tensor:
        """The latent means (rows, dims): what rows are represented by."""
        mean: Tensor = self.encoder(self.standard(x))[0]
        return mean

    def surprise(self, row: Tensor, latent: Tensor) -> Tensor:
        """-log p(row | latent) of each standardised row."""
        error: Tensor = (row - self.decoder(latent)) / self.log_deviation.exp()
        constant = self.log_deviation + 0.5 * math.log(2 * math.pi)
        return 0.5 * error.square().sum(1) + row.shape[1] * constant


class Encoder(nn.Module):
    """Mean and log variance, each (rows, dims), of a normal distribution for each row."""

    def __init__(self, features: int, dims: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(features, hidden), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(hidden, dims), nn.Linear(hidden, dims)

    def forward(self, row: Tensor) -> tuple[Tensor, Tensor]:
        h = self.hidden(row)
        return self.mean(h), self.log_variance(h)


def negative_elbo(module: nn.Module, batch: Batch) -> Tensor:
    """-ELBO of the standardised rows, with one draw of the latent each, from torch's own stream."""
    assert isinstance(module, VAE)
    assert isinstance(batch.x, Tensor)
    row = module.standard(batch.x)
    mean, log_variance = module.encoder(row)
    latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
    return (module.surprise(row, latent) + divergence(mean, log_variance)).mean()


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, variance) || N(0, 1)) of each row."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)


def train_vae(
    train: Examples, validation: Examples, *, dims: int = 100, seed: int = 0, how: Training = TRAINING
) -> tuple[Params, tuple[Epoch, ...]]:
    """The parameters of the epoch that suits the validation rows best, and the losses of all epochs."""
    bench = vae_bench(train, dims, seed)
    start = bench.init(seed) | scaling(_rows(train))
    course = trained("vae", bench, start, train, validation, how, negative_elbo)
    return course.best, course.history


def vae_bench(data: Examples, dims: int, seed: int = 0) -> Bench:
    """Where a VAE for rows like these is trained and used: its `logits` are latent means."""
    make: Callable[[], nn.Module] = partial(VAE, _rows(data)[0].numel(), dims)
    return Bench(Task(make), RECIPE, (seed,))


def scaling(x: Tensor) -> Params:
    """The mean of each feature and its deviation: one deviation for all pixels of images.

    A pixel at the rim that is hardly ever lit would otherwise weigh as much as one in the middle. Features
    that do not vary stay as they are.
    """
    flat = x.flatten(1).double()
    variance = flat.var(0, correction=0)
    if x.ndim > 2:
        variance = variance.mean().expand_as(variance)
    spread = torch.where(variance > 0, variance, 1.0).sqrt()
    return {"centre": flat.mean(0).float(), "spread": spread.float()}


def _rows(data: Examples) -> Tensor:
    if isinstance(data.x, dict):
        raise DataError(
            f"a VAE needs rows that are one tensor, got {len(data.x)} by name; use the features of an encoder"
        )
    if not len(data) or not torch.isfinite(data.x).all():
        raise DataError(f"a VAE needs finite rows, got {len(data)} rows, some nan or inf, or none at all")
    return data.x
