"""Rows are taken by index, from one tensor or from several, and images stay as they lie."""

from __future__ import annotations

import pytest
import torch

from fedakd.examples import Examples, images, take

ROWS = torch.tensor([4, 0, 0, 3])


def test_rows_of_inputs_and_labels_stay_together() -> None:
    x = torch.arange(5.0)
    examples = Examples(x[:, None].expand(5, 3), x.long() * 10)
    chosen = examples[ROWS]
    assert len(examples) == 5
    assert len(chosen) == 4
    assert torch.equal(chosen.x[:, 0] * 10, chosen.y.float())  # type: ignore[index]
    assert chosen.y.tolist() == [40, 0, 0, 30]
    assert chosen[torch.tensor([3])].y.tolist() == [30]


def test_inputs_by_name_are_taken_by_name() -> None:
    x = {"age": torch.arange(5.0), "notes": torch.arange(10).view(5, 2)}
    chosen = Examples(x, torch.arange(5))[ROWS]
    assert isinstance(chosen.x, dict)
    assert torch.equal(chosen.x["age"], x["age"][ROWS])
    assert torch.equal(chosen.x["notes"], x["notes"][ROWS])
    assert torch.equal(chosen.y, ROWS)


def test_a_mask_chooses_its_rows() -> None:
    examples = Examples(torch.randn(5, 1, 4, 4), torch.arange(5))
    mask = torch.tensor([True, False, True, False, False])
    assert examples[mask].y.tolist() == [0, 2]
    assert torch.equal(examples[mask].x, examples.x[mask])  # type: ignore[arg-type, index]


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 3, 2), (5, 3, 4, 6), (5, 1, 4, 4), (5, 2, 3, 4, 5)])
@pytest.mark.parametrize("rows", [ROWS, torch.arange(0)], ids=["some", "none"])
def test_taking_is_indexing(shape: tuple[int, ...], rows: torch.Tensor) -> None:
    x = torch.randn(shape)
    assert torch.equal(take(x, rows), x[rows])  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_images_keep_their_layout(layout: torch.memory_format) -> None:
    x = torch.randn(5, 3, 4, 6).contiguous(memory_format=layout)
    chosen = take(x, ROWS)
    assert isinstance(chosen, torch.Tensor)
    assert torch.equal(chosen, x[ROWS])
    assert chosen.is_contiguous(memory_format=layout)


def test_taken_rows_are_a_copy() -> None:
    x = torch.zeros(5, 1, 2, 2)
    take(x, ROWS).add_(1)  # type: ignore[union-attr]
    assert not x.any()


def test_bytes_become_floats_from_nought_to_one() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).view(2, 2, 8, 8)
    ready = images(pixels)
    assert ready.dtype == torch.float32
    assert ready.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(ready, pixels.float() / 255)
    assert (float(ready.min()), float(ready.max())) == (0.0, 1.0)
    assert pixels.flatten().tolist() == list(range(256))
