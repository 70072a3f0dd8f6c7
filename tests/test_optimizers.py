"""The optimisers take the steps of torch.optim's, to the bit, without its weight."""

from __future__ import annotations

import subprocess
import sys
from typing import Literal

import pytest
import torch
from torch import Tensor

from fedakd import trees, wire
from fedakd.optimizers import optimizer, taken
from fedakd.trees import Tree

Kind = Literal["sgd", "adam"]
REFERENCE = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
SHAPES = [(), (1,), (7,), (3, 5), (4, 3, 3, 3), (0,), (130, 17)]


def parameters(seed: int = 0, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=rng, dtype=dtype).requires_grad_() for shape in SHAPES]


def numbered(several: list[Tensor]) -> dict[str, Tensor]:
    return {str(i): parameter for i, parameter in enumerate(several)}


def give_gradients(several: list[list[Tensor]], rng: torch.Generator, absent: list[int]) -> None:
    for i, same in enumerate(zip(*several, strict=True)):
        grad = torch.randn(same[0].shape, generator=rng, dtype=same[0].dtype)
        for parameter in same:
            parameter.grad = None if i in absent else grad.clone()


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_those_of_torch_to_the_bit(kind: Kind, weight_decay: float, dtype: torch.dtype) -> None:
    ours, theirs, rng = parameters(dtype=dtype), parameters(dtype=dtype), torch.Generator().manual_seed(1)
    stepper = optimizer(kind, numbered(ours), 0.03, weight_decay)
    reference = REFERENCE[kind](theirs, lr=0.03, weight_decay=weight_decay, fused=True)
    for step in range(25):
        absent = [1, 3] if step % 3 == 0 else [4] if step % 3 == 1 else []
        give_gradients([ours, theirs], rng, absent)
        stepper.step()
        reference.step()
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b)
    assert not torch.equal(ours[2], parameters(dtype=dtype)[2])


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_an_optimiser_goes_on_from_the_state_of_another_as_torchs_would(kind: Kind) -> None:
    ours, theirs, rng = parameters(), parameters(), torch.Generator().manual_seed(1)
    reference = REFERENCE[kind](theirs, lr=0.03, weight_decay=0.01, fused=True)
    moments: Tree = {}
    for step in range(12):
        stepper = optimizer(kind, numbered(ours), 0.03, 0.01, moments)  # a new one for every step
        before = trees.transform(moments, torch.clone)
        give_gradients([ours, theirs], rng, [4] if step % 3 == 1 else [])
        stepper.step()
        reference.step()
        assert trees.equal(moments, before)
        moments = wire.loads(wire.dumps(stepper.moments()))
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert set(moments) == (set() if kind == "sgd" else set(numbered(ours)))


def test_state_for_some_parameters_leaves_the_others_new() -> None:
    def stepped(moments: Tree) -> list[Tensor]:
        several = parameters()
        give_gradients([several], torch.Generator().manual_seed(2), [])
        optimizer("adam", numbered(several), 0.03, 0.0, moments).step()
        return several

    several = parameters(seed=3)
    older = optimizer("adam", numbered(several), 0.03, 0.0)
    give_gradients([several], torch.Generator().manual_seed(3), [])
    older.step()
    fresh, partly, whole = (stepped(m) for m in ({}, {"3": older.moments()["3"]}, older.moments()))
    for i in range(len(SHAPES)):
        assert torch.equal(partly[i], whole[i] if i == 3 else fresh[i])
    assert not torch.equal(whole[3], fresh[3])


def test_sgd_is_the_textbook_step() -> None:
    parameter = torch.tensor([1.0, -2.0], requires_grad=True)
    parameter.grad = torch.tensor([0.5, 0.25])
    optimizer("sgd", {"w": parameter}, 0.5, 0.5).step()
    assert parameter.tolist() == [1 - 0.5 * (0.5 + 0.5 * 1), -2 - 0.5 * (0.25 - 0.5 * 2)]


def test_the_first_step_of_adam_has_the_length_of_the_learning_rate() -> None:
    parameter = torch.zeros(3, requires_grad=True)
    parameter.grad = torch.tensor([100.0, -0.01, 3.0])
    optimizer("adam", {"w": parameter}, 0.1, 0.0).step()
    torch.testing.assert_close(parameter.detach(), torch.tensor([-0.1, 0.1, -0.1]))


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_gradients_are_forgotten_after_a_step(kind: Kind) -> None:
    several = parameters()
    stepper = optimizer(kind, numbered(several), 0.1, 0.1)
    give_gradients([several], torch.Generator().manual_seed(0), [])
    stepper.step()
    assert all(parameter.grad is None for parameter in several)
    before = [parameter.detach().clone() for parameter in several]
    stepper.step()  # nothing to follow, not even weight decay moves
    assert all(torch.equal(a, b) for a, b in zip(before, several, strict=True))


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_step_leaves_the_gradient_tensors_and_the_graph_alone(kind: Kind) -> None:
    parameter = torch.ones(3, requires_grad=True)
    grad = torch.full((3,), 2.0)
    parameter.grad = grad
    optimizer(kind, {"w": parameter}, 0.1, 0.5).step()
    assert torch.equal(grad, torch.full((3,), 2.0))
    assert parameter.is_leaf
    assert parameter.requires_grad
    assert not torch.equal(parameter, torch.ones(3))


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_no_parameters_are_no_trouble(kind: Kind) -> None:
    optimizer(kind, {}, 0.1, 0.0).step()


def test_taken_names_the_parameters_with_gradients() -> None:
    several = [torch.zeros(1, requires_grad=True) for _ in range(3)]
    several[1].grad, several[2].grad = torch.ones(1), torch.full((1,), 2.0)
    moving, grads = taken(several)
    assert moving == [1, 2]
    assert torch.cat(grads).tolist() == [1.0, 2.0]
    assert taken(several) == ([], [])


STEPPING = """
import sys, torch
from fedakd.optimizers import optimizer
for kind in ("sgd", "adam"):
    parameter = torch.ones(3, requires_grad=True)
    stepper = optimizer(kind, {"w": parameter}, 0.1, 0.1)
    for _ in range(2):
        parameter.pow(2).sum().backward()
        stepper.step()
print([name for name in sys.modules if name.split(".")[:2] in (["torch", "_dynamo"], ["torch", "_inductor"])])
"""


def test_stepping_does_not_load_the_compiler() -> None:
    run = subprocess.run([sys.executable, "-c", STEPPING], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
