"""The paper's convolutional networks. Each has a .body that makes features and a .head for classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class ConvNormPool(nn.Module):
    """Convolution, batch norm, ReLU and 2x2 max-pooling as one step.

    The values are those of the four layers in a row. Pooling comes first here, because a normalisation with a
    positive scale keeps the order of values, and a negative scale is moved into the convolution's sign: then
    normalisation and ReLU touch a quarter of the entries, forth and back. The convolution's bias has no
    influence in training (the batch mean removes it), only on the running mean.
    """

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x: Tensor) -> Tensor:
        if not self.norm.training:
            return self.folded(x)
        conv, norm = self.conv, self.norm
        step: Callable[..., tuple[Tensor, Tensor, Tensor, int]] = _TrainingStep.apply
        out, mean, var, count = step(x, conv.weight, norm.weight, norm.bias, norm.eps)
        self.remember(mean, var, count)
        return out

    def remember(self, mean: Tensor, var: Tensor, count: int) -> None:
        """The running statistics, with the unbiased variance, as batch norm keeps them."""
        norm, momentum = self.norm, self.norm.momentum or 0.0
        with torch.no_grad():
            norm.running_mean.lerp_(mean + self.conv.bias, momentum)  # type: ignore[union-attr, operator]
            norm.running_var.lerp_(var * (count / max(count - 1, 1)), momentum)  # type: ignore[union-attr]

    def folded(self, x: Tensor) -> Tensor:
        """Evaluation mode: batch norm becomes part of the convolution."""
        conv, norm = self.conv, self.norm
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)  # type: ignore[operator, arg-type]
        bias = norm.bias + (conv.bias - norm.running_mean) * scale  # type: ignore[operator]
        weight = conv.weight * scale.view(-1, 1, 1, 1)
        return F.relu(F.max_pool2d(F.conv2d(x, weight, bias, padding=1), 2))


class PaperCNN(nn.Module):
    """Two blocks of convolution and batch norm and a linear head: 50,378 parameters on 1x28x28."""

    def __init__(self, channels: int = 1, size: int = 28, classes: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(ConvNormPool(channels, 32), ConvNormPool(32, 64), nn.Flatten())
        self.head = nn.Linear(64 * (size // 4) ** 2, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


class TwoLayerCNN(nn.Module):
    """The label-shift appendix's net for FashionMNIST: tanh, no batch norm, images on a 32x32 canvas.

    Pooling comes before tanh, here as before ReLU below. Both keep the order of values, so the outcome is the
    same, and tanh, else half the time of a forward pass, touches a quarter of the entries.
    """

    def __init__(self, channels: int = 1, size: int = 28, classes: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _canvas(size),
            *(nn.Conv2d(channels, 64, 3), nn.MaxPool2d(2), nn.Tanh()),
            *(nn.Conv2d(64, 16, 7), nn.MaxPool2d(2), nn.Tanh(), nn.Flatten()),
            *(nn.Linear(256, 200), nn.Tanh()),
        )
        self.head = nn.Linear(200, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


class ThreeLayerCNN(nn.Module):
    """The label-shift appendix's net for CIFAR10: ReLU, no batch norm, images on a 32x32 canvas."""

    def __init__(self, channels: int = 3, size: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _canvas(size),
            *(nn.Conv2d(channels, 32, 3), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(1024, 64), nn.ReLU()),
        )
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


def _canvas(size: int) -> nn.ZeroPad2d:
    before = (32 - size) // 2
    return nn.ZeroPad2d((before, 32 - size - before) * 2)


class _TrainingStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Any:
        sign = torch.where(gamma < 0, -1.0, 1.0).to(gamma.dtype)
        signed = weight * sign.view(-1, 1, 1, 1)
        y = F.conv2d(x, signed, padding=1).contiguous(memory_format=torch.channels_last)  # (N, filters, H, W)
        mean, var = torch.ops.aten.batch_norm_update_stats(y, None, None, 0.0)
        rstd = (var + eps).rsqrt()
        pooled, where = F.max_pool2d(y, 2, return_indices=True)
        normal = pooled.sub_(_channel(mean)).mul_(_channel(rstd))
        out = torch.addcmul(_channel(beta), normal, _channel(gamma.abs())).relu_()
        ctx.save_for_backward(x, signed, y, where, normal, out, mean, rstd, gamma, sign)
        count = y.numel() // y.shape[1]
        batch_mean = mean * sign
        ctx.mark_non_differentiable(batch_mean, var)
        return out, batch_mean, var, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        x, signed, y, where, normal, out, mean, rstd, gamma, sign = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grad, out, 0)
        d_beta, d_gamma = grad.sum((0, 2, 3)), (grad * normal).sum((0, 2, 3))
        # batch norm's gradient a (g - mean(g) - y_hat mean(g y_hat)): g is zero but at the maxima,
        # so the dense part is affine in y, and the rest is added where the maxima were
        a = gamma.abs() * rstd
        count = y.numel() // y.shape[1]
        slope = -a * rstd * d_gamma / count
        d_y = torch.addcmul(_channel(-a * d_beta / count - slope * mean), y, _channel(slope))
        _flat(d_y).scatter_add_(1, _flat(where), _flat(grad * _channel(a)))
        wanted = [ctx.needs_input_grad[0], True, False]
        d_x, d_weight, _ = torch.ops.aten.convolution_backward(
            d_y, x, signed, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, wanted
        )
        return d_x, d_weight * sign.view(-1, 1, 1, 1), d_gamma * sign, d_beta, None


def _channel(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)


def _flat(images: Tensor) -> Tensor:
    """(N, C, H, W) stored channels_last as (N, H * W, C)."""
    n, channels = images.shape[:2]
    return images.permute(0, 2, 3, 1).view(n, -1, channels)
