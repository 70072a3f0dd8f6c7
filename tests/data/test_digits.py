from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from fedakd.data.digits import Digits
from fedakd.data.images import ImageDataset, labels
from fedakd.errors import DataError


@pytest.fixture(scope="module")
def digits():
    return Digits().load()


def test_digits_have_the_shape_of_every_image_dataset(digits):
    assert digits.x.shape == (1797, 1, 8, 8)
    assert (digits.x.dtype, digits.y.dtype) == (np.uint8, np.int64)
    assert (len(digits), digits.official_train, digits.classes) == (1797, 1797, 10)
    assert "scikit-learn" in digits.origin


def test_the_facts_known_without_loading_are_those_of_the_data(digits):
    source = Digits()
    assert (source.rows, source.shape, source.classes) == (len(digits), digits.shape, digits.classes)
    assert (digits.y.min(), digits.y.max()) == (0, source.classes - 1)
    assert source.where().startswith("scikit-learn ")


def test_sixteenths_become_brightness_between_0_and_1(digits):
    original = torch.from_numpy(load_digits().images / 16).float()[:, None]
    got = digits.examples(np.arange(1797)).x
    assert (got.min(), got.max()) == (0, 1)
    torch.testing.assert_close(got, original, atol=1 / 510 + 1e-6, rtol=0)


def test_examples_are_the_rows_asked_for_in_that_order(digits):
    rows = np.array([5, 3, 5])
    examples = digits.examples(rows)
    assert examples.y.tolist() == digits.y[rows].tolist()
    np.testing.assert_allclose(examples.x.numpy(), digits.x[rows] / 255, atol=1e-7)
    assert (examples.x.dtype, examples.y.dtype) == (torch.float32, torch.int64)


def test_examples_are_channels_last_and_a_copy():
    x = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    data = ImageDataset("toy", 2, x.copy(), np.array([0, 1]), (3, 4, 4), 2, "made up")
    examples = data.examples(np.array([0, 1]))
    assert examples.x.is_contiguous(memory_format=torch.channels_last)
    examples.x.zero_()
    examples.y.zero_()
    np.testing.assert_array_equal(data.x, x)
    assert data.y.tolist() == [0, 1]


def test_images_and_labels_must_be_as_many():
    with pytest.raises(DataError, match=r"need an array of \(3, 1, 4, 4\), got \(2, 1, 4, 4\)"):
        ImageDataset("toy", 2, np.zeros((2, 1, 4, 4), np.uint8), np.zeros(3, np.int64), (1, 4, 4), 2, "")


@pytest.mark.parametrize("wrong", [-1, 3])
def test_labels_must_be_classes(wrong):
    with pytest.raises(DataError, match=f"toy: labels must be 0 to 2, got {wrong} in row 1"):
        labels([0, wrong], 3, "toy")


def test_check_judges_the_one_file():
    assert [verdict.ok for verdict in Digits().check()] == [True]
    assert not Digits(rows=5).check()[0].ok
