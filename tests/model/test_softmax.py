"""A word's probability is its share of all, however many are worked out at once."""

import pytest
import torch

from elmokit.model.softmax import Softmax


@pytest.fixture
def softmax():
    made = Softmax(50, 8).double()
    torch.nn.init.normal_(made.bias)
    return made


def test_the_likelihood_is_that_of_the_whole_table(softmax, monkeypatch):
    assert softmax.words == 50
    vectors, targets = torch.randn(23, 8).double(), torch.randint(50, (23,))
    table = softmax(vectors)
    torch.testing.assert_close(table.exp().sum(1), torch.ones(23).double())
    expected = table[torch.arange(23), targets]
    torch.testing.assert_close(softmax.log_likelihood(vectors, targets), expected)
    monkeypatch.setattr("elmokit.model.softmax._LOGIT_BYTES", 5 * 50 * 8)  # five rows at a time
    torch.testing.assert_close(softmax.log_likelihood(vectors, targets), expected)
    assert softmax.log_likelihood(vectors[:0], targets[:0]).shape == (0,)


def test_the_likelihood_has_its_gradient(softmax):
    vectors, targets = torch.randn(5, 8).double().requires_grad_(), torch.randint(50, (5,))
    parts = [vectors, softmax.weight, softmax.bias]
    expected = torch.autograd.grad(softmax(vectors)[torch.arange(5), targets].sum(), parts)
    found = torch.autograd.grad(softmax.log_likelihood(vectors, targets).sum(), parts)
    torch.testing.assert_close(found, expected)


def test_logits_of_any_size_are_no_matter(softmax):
    vectors = torch.full((2, 8), 1e4).double()
    assert softmax.log_likelihood(vectors, torch.tensor([0, 1])).isfinite().all()
