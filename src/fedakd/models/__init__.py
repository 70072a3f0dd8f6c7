"""The networks by name, each made for a dataset's shape and classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from torch import nn

from fedakd.errors import PlanError, unknown
from fedakd.models.cnn import PaperCNN, ThreeLayerCNN, TwoLayerCNN
from fedakd.models.mlp import MLP

CONVOLUTIONAL = {"cnn": PaperCNN, "cnn2": TwoLayerCNN, "cnn3": ThreeLayerCNN}
DENSE: dict[str, tuple[int, ...]] = {"mlp": (64, 32), "linear": ()}
MODELS = {
    "cnn": "the paper's CNN with batch norm, two blocks (default)",
    "cnn2": "2-layer CNN of the label-shift appendix (FashionMNIST)",
    "cnn3": "3-layer CNN of the label-shift appendix (CIFAR10)",
    "mlp": "two hidden layers of 64 and 32, for tables",
    "linear": "a linear model",
}


def factory(model: str, shape: tuple[int, ...], classes: int) -> Callable[[], nn.Module]:
    """A picklable maker of the named model for rows of this shape.

    >>> sum(p.numel() for p in factory("cnn", (1, 28, 28), 10)().parameters())
    50378
    """
    if model in DENSE:
        return partial(MLP, math.prod(shape), classes, DENSE[model])
    if model not in CONVOLUTIONAL:
        raise PlanError(unknown("model", model, MODELS))
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] > 32 or shape[1] < 4:
        raise PlanError(
            f"model {model!r} needs square images of 4 to 32 pixels, got rows of shape {shape}; use 'mlp'"
        )
    return partial(CONVOLUTIONAL[model], shape[0], shape[1], classes)
