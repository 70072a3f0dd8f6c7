"""The networks have the papers' sizes, and the fused block is the four layers it stands for."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from fedakd.errors import PlanError
from fedakd.models import MODELS, factory
from fedakd.models.cnn import ConvNormPool, PaperCNN, ThreeLayerCNN, TwoLayerCNN
from fedakd.models.mlp import MLP

GAMMAS = {
    "positive": [0.5, 1.0, 1.5, 2.0],
    "negative": [-0.5, -1.0, -1.5, -2.0],
    "mixed": [1.0, -1.0, 0.3, -2.0],
    "with zeros": [0.0, -1.0, 1.0, 0.0],
}
LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def pair(
    channels: int, gamma: list[float], dtype: torch.dtype = torch.float64
) -> tuple[ConvNormPool, nn.Sequential]:
    """The block, and the layers in a row, with the same values."""
    block = ConvNormPool(channels, len(gamma)).to(dtype)
    with torch.no_grad():
        block.norm.weight.copy_(torch.tensor(gamma))
        block.norm.bias.normal_()
        block.norm.running_mean.normal_()  # type: ignore[union-attr, operator]
        block.norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr, operator]
    conv, norm = copy.deepcopy(block.conv), copy.deepcopy(block.norm)
    return block, nn.Sequential(conv, norm, nn.ReLU(), nn.MaxPool2d(2))


def agree(block: ConvNormPool, layers: nn.Sequential, x: Tensor, **tolerance: float) -> None:
    """One forward and backward pass of both: values and all gradients; the gradients are cleared again."""
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, expected = block(ours), layers(theirs)
    torch.testing.assert_close(out, expected, **tolerance)
    weights = torch.randn(expected.shape, dtype=x.dtype)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    conv, norm = layers[0], layers[1]
    torch.testing.assert_close(ours.grad, theirs.grad, **tolerance)
    torch.testing.assert_close(block.conv.weight.grad, conv.weight.grad, **tolerance)  # type: ignore[union-attr]
    torch.testing.assert_close(block.norm.bias.grad, norm.bias.grad, **tolerance)  # type: ignore[union-attr]
    # at a scale of nought every entry of a window is a maximum, and any of them may give the gradient
    sure = block.norm.weight != 0
    torch.testing.assert_close(block.norm.weight.grad[sure], norm.weight.grad[sure], **tolerance)  # type: ignore
    if block.training:
        assert block.conv.bias.grad is None  # type: ignore[union-attr]
        torch.testing.assert_close(conv.bias.grad, torch.zeros_like(conv.bias), atol=1e-3, rtol=0)  # type: ignore
    else:
        torch.testing.assert_close(block.conv.bias.grad, conv.bias.grad, **tolerance)  # type: ignore[union-attr]
    for module in (block, layers):
        module.zero_grad()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("shape", [(3, 2, 8, 8), (4, 1, 7, 7), (1, 3, 5, 5), (2, 2, 6, 9), (1, 1, 2, 2)])
def test_the_block_is_its_four_layers(
    shape: tuple[int, ...], gamma: str, layout: torch.memory_format, training: bool
) -> None:
    block, layers = pair(shape[1], GAMMAS[gamma])
    x = torch.randn(shape, dtype=torch.float64).contiguous(memory_format=layout)
    agree(block.train(training), layers.train(training), x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_block_is_its_four_layers_in_single_precision(
    layout: torch.memory_format, training: bool
) -> None:
    block, layers = pair(3, GAMMAS["mixed"], torch.float32)
    x = torch.randn(16, 3, 14, 14).contiguous(memory_format=layout)
    agree(block.train(training), layers.train(training), x, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("value", [0.0, 1.0, -2.5])
def test_of_equal_pixels_the_first_counts_as_the_maximum(gamma: str, value: float) -> None:
    block, layers = pair(1, GAMMAS[gamma])
    whole = torch.tensor([1.0, -2.0, 3.0, 1.0, 2.0, -1.0, 2.0, -3.0, 1.0], dtype=torch.float64)
    for conv in (block.conv, layers[0]):
        conv.weight.data.copy_(whole.roll(1).view(3, 3))  # whole numbers: ties are exact  # type: ignore
    x = torch.full((2, 1, 8, 8), value, dtype=torch.float64)
    agree(block.train(), layers.train(), x, rtol=1e-9, atol=1e-9)
    for norm in (block.norm, layers[1]):
        make_whole(norm)  # type: ignore[arg-type]  # or weights that batch norm is folded into would round
    agree(block.eval(), layers.eval(), x, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def make_whole(norm: nn.BatchNorm2d) -> None:
    norm.eps = 0.0
    norm.running_var.fill_(1.0)  # type: ignore[union-attr]
    for part in (norm.running_mean, norm.weight, norm.bias):
        part.copy_((4 * part).round())  # type: ignore[union-attr]


@pytest.mark.parametrize("gamma", ["positive", "negative", "mixed"])
def test_running_statistics_follow_those_of_batch_norm(gamma: str) -> None:
    block, layers = pair(2, GAMMAS[gamma])
    for step in range(5):
        x = torch.randn(4, 2, 7, 7, dtype=torch.float64) * (step + 1) + step
        agree(block.train(), layers.train(), x, rtol=1e-8, atol=1e-8)
        norm = layers[1]
        torch.testing.assert_close(block.norm.running_mean, norm.running_mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(block.norm.running_var, norm.running_var, rtol=1e-12, atol=1e-12)
    agree(block.eval(), layers.eval(), x, rtol=1e-9, atol=1e-9)


def test_evaluation_changes_no_statistics() -> None:
    block = ConvNormPool(1, 3).eval()
    before = copy.deepcopy(block.state_dict())
    block(torch.randn(2, 1, 6, 6))
    assert all(torch.equal(before[name], value) for name, value in block.state_dict().items())


@pytest.mark.parametrize("training", [True, False])
def test_gradients_are_the_limits_of_differences(training: bool) -> None:
    block, _ = pair(2, [1.0, -0.7, 0.4])
    block.train(training)
    names = [name for name, _ in block.named_parameters() if not (training and name == "conv.bias")]
    values = [block.get_parameter(name).detach().clone().requires_grad_() for name in names]

    def out(x: Tensor, *parts: Tensor) -> Tensor:
        return torch.func.functional_call(block, dict(zip(names, parts, strict=True)), (x,))  # type: ignore

    x = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(out, (x, *values))


def test_the_block_does_not_change_its_input() -> None:
    x = torch.randn(2, 1, 6, 6, requires_grad=True)
    before = x.detach().clone()
    ConvNormPool(1, 3)(x).sum().backward()
    assert torch.equal(x, before)


def test_a_frozen_convolution_still_passes_gradients_to_the_scale() -> None:
    block, layers = pair(2, GAMMAS["mixed"])
    block.conv.requires_grad_(False)
    layers[0].requires_grad_(False)
    x = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    block(x).square().sum().backward()
    layers(x).square().sum().backward()
    assert block.conv.weight.grad is None
    torch.testing.assert_close(block.norm.weight.grad, layers[1].weight.grad)


# Whole networks


@pytest.mark.parametrize(("shape", "count"), [((1, 28, 28), 50_378), ((3, 32, 32), 60_554)])
def test_the_papers_network_has_the_papers_size(shape: tuple[int, ...], count: int) -> None:
    model = factory("cnn", shape, 10)()
    assert sum(p.numel() for p in model.parameters()) == count
    floating = [b for b in model.buffers() if b.is_floating_point()]
    assert sum(b.numel() for b in floating) == 192
    assert len(list(model.buffers())) - len(floating) == 2


@pytest.mark.parametrize("size", [4, 5, 6, 7, 8, 28, 32])
def test_the_papers_network_is_its_layers_in_a_row(size: int) -> None:
    model = PaperCNN(2, size, 5).double()
    layers = [
        layer
        for block in list(model.body)[:2]
        for layer in (copy.deepcopy(block.conv), copy.deepcopy(block.norm), nn.ReLU(), nn.MaxPool2d(2))
    ]
    plain = nn.Sequential(*layers, nn.Flatten(), copy.deepcopy(model.head))
    x = torch.randn(3, 2, size, size, dtype=torch.float64)
    for training in (True, False):
        torch.testing.assert_close(model.train(training)(x), plain.train(training)(x), rtol=1e-9, atol=1e-9)


def test_the_appendix_networks_have_the_sizes_of_their_layers() -> None:
    two, three = factory("cnn2", (1, 28, 28), 10)(), factory("cnn3", (3, 32, 32), 10)()
    convolutions = (1 * 9 + 1) * 64 + (64 * 49 + 1) * 16
    assert sum(p.numel() for p in two.parameters()) == convolutions + (256 + 1) * 200 + (200 + 1) * 10
    convolutions = (3 * 9 + 1) * 32 + (32 * 9 + 1) * 64 + (64 * 9 + 1) * 64
    assert sum(p.numel() for p in three.parameters()) == convolutions + (1024 + 1) * 64 + (64 + 1) * 10


def activated_first(body: nn.Module) -> nn.Sequential:
    """The same layers with each activation before its pooling, as the paper lists them."""
    layers = list(body.children())
    for at in [at for at, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]:
        layers[at : at + 2] = layers[at + 1], layers[at]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("make", [TwoLayerCNN, ThreeLayerCNN])
def test_the_appendix_networks_may_pool_before_they_activate(make: type[nn.Module]) -> None:
    model = make(1, 28, 10)
    listed = activated_first(model.body)
    kinds = [type(layer) for layer in listed]
    assert kinds.index(nn.MaxPool2d) == kinds.index(nn.Conv2d) + 2
    x = torch.rand(16, 1, 28, 28)
    ours, theirs = model.body(x), listed(x)
    assert torch.equal(ours, theirs)
    weights, values = torch.randn(ours.shape), list(model.body.parameters())
    gradients = [torch.autograd.grad((out * weights).sum(), values) for out in (ours, theirs)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("make", [TwoLayerCNN, ThreeLayerCNN])
@pytest.mark.parametrize(("before", "after"), [(2, 2), (12, 12), (2, 3)])
def test_small_images_stand_in_the_middle_of_a_canvas(make: type[nn.Module], before: int, after: int) -> None:
    size = 32 - before - after
    small = make(1, size, 4)
    large = make(1, 32, 4)
    large.load_state_dict(small.state_dict())
    x = torch.randn(2, 1, size, size)
    canvas = torch.zeros(2, 1, 32, 32)
    canvas[:, :, before : 32 - after, before : 32 - after] = x
    torch.testing.assert_close(small(x), large(canvas))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8)])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_its_head_on_its_body(name: str, shape: tuple[int, ...]) -> None:
    model = factory(name, shape, 7)().eval()
    x = torch.randn(3, *shape)
    assert model(x).shape == (3, 7)
    assert torch.equal(model.head(model.body(x)), model(x))  # type: ignore[operator]
    assert model.body(x).ndim == 2  # type: ignore[operator]
    assert [name.split(".")[0] for name in model.state_dict()][-1] == "head"


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_but_the_cancelled_bias_gets_a_gradient(name: str) -> None:
    model = factory(name, (1, 8, 8), 3)()
    nn.functional.cross_entropy(model(torch.randn(6, 1, 8, 8)), torch.arange(6) % 3).backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == ({"body.0.conv.bias", "body.1.conv.bias"} if name == "cnn" else set())


def test_dense_models_see_rows_of_numbers() -> None:
    linear, mlp = factory("linear", (5,), 3)(), factory("mlp", (2, 3), 4)()
    assert [tuple(p.shape) for p in linear.parameters()] == [(3, 5), (3,)]
    assert [p.shape[0] for p in mlp.parameters() if p.ndim == 2] == [64, 32, 4]
    x = torch.randn(6, 5)
    torch.testing.assert_close(linear(x), x @ linear.head.weight.T + linear.head.bias)  # type: ignore
    hidden = MLP(5, 3, (4,))
    first, last = hidden.body[1], hidden.head
    torch.testing.assert_close(hidden(x), last(first(x).clamp(min=0)))


# The factory


@pytest.mark.parametrize("name", MODELS)
def test_factories_travel_to_workers(name: str) -> None:
    make = pickle.loads(pickle.dumps(factory(name, (1, 8, 8), 4)))
    assert make()(torch.randn(2, 1, 8, 8)).shape == (2, 4)
    assert make() is not make()


def test_an_unknown_model_is_named_with_its_neighbours() -> None:
    with pytest.raises(
        PlanError, match=r"unknown model 'cnn4'; did you mean 'cnn.*Known: cnn, cnn2, cnn3, mlp, linear"
    ):
        factory("cnn4", (1, 28, 28), 10)


@pytest.mark.parametrize("shape", [(10,), (28, 28), (1, 28, 27), (1, 64, 64), (1, 3, 3), (1, 2, 8, 8)])
@pytest.mark.parametrize("name", ["cnn", "cnn2", "cnn3"])
def test_convolutions_ask_for_square_images(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        PlanError, match=rf"model '{name}' needs square images .* got rows of shape .*; use 'mlp'"
    ):
        factory(name, shape, 10)
