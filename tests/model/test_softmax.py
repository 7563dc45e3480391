import math

import pytest
import torch
import torch.nn.functional as F

from elmokit.model.softmax import (
    AdaptiveSoftmax,
    NegativeSample,
    Softmax,
    sample_negatives,
    sampled_loss,
)


@pytest.fixture
def case():
    torch.manual_seed(0)
    vectors = torch.randn(40, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(30, 6, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(30, dtype=torch.float64, requires_grad=True)
    return vectors, torch.randint(0, 30, (40,)), weight, bias


def test_sampling_every_word_gives_the_full_softmax(case):
    vectors, targets, weight, bias = case
    sampled = sampled_loss(
        vectors, targets, weight, bias, NegativeSample.entire_vocabulary(30, like=vectors)
    )
    full = F.cross_entropy(F.linear(vectors, weight, bias), targets, reduction="sum")
    torch.testing.assert_close(sampled, full)
    ours = torch.autograd.grad(sampled, (vectors, weight, bias))
    theirs = torch.autograd.grad(full, (vectors, weight, bias))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_the_sampled_loss_equals_tensorflows(case):
    vectors, targets, weight, bias = case
    sample = sample_negatives(30, 12, torch.Generator().manual_seed(3))
    ours = sampled_loss(vectors, targets, weight, bias, sample)
    total = 0.0
    for vector, target in zip(vectors, targets.tolist(), strict=True):
        words = [target, *(word for word in sample.word_ids.tolist() if word != target)]
        logits = weight[words] @ vector + bias[words] - sample.log_expected_counts[words]
        total = total - torch.log_softmax(logits, 0)[0]
    torch.testing.assert_close(ours, total, rtol=1e-6, atol=1e-6)
    mine = torch.autograd.grad(ours, (vectors, weight, bias))
    other = torch.autograd.grad(total, (vectors, weight, bias))
    for one, two in zip(mine, other, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)


def test_negative_samples_are_distinct_and_as_frequent_as_expected():
    words, negatives, rounds = 50, 10, 2000
    generator = torch.Generator().manual_seed(0)
    often, expected = torch.zeros(words), torch.zeros(words)
    for _ in range(rounds):
        sample = sample_negatives(words, negatives, generator)
        assert len(sample.word_ids.unique()) == negatives
        often[sample.word_ids] += 1
        expected += sample.log_expected_counts.exp()
    assert often.argmax() == 0
    # The expectation is that of the tries made, TensorFlow's own approximation: right on average.
    assert math.isclose(expected.sum() / rounds, negatives, rel_tol=0.05)
    torch.testing.assert_close(often / rounds, expected / rounds, atol=0.05, rtol=0)


def test_blocks_do_not_change_the_loss(case, monkeypatch):
    vectors, targets, weight, bias = case
    sample = sample_negatives(30, 12, torch.Generator().manual_seed(3))
    in_one_block = sampled_loss(vectors, targets, weight, bias, sample)
    grads = torch.autograd.grad(in_one_block, (vectors, weight, bias))
    monkeypatch.setattr("elmokit.model.softmax._MIN_ROWS_PER_BLOCK", 5)
    monkeypatch.setattr("elmokit.model.softmax._LOGITS_PER_BLOCK", 0)
    in_blocks = sampled_loss(vectors, targets, weight, bias, sample)
    torch.testing.assert_close(in_one_block, in_blocks)
    for one, two in zip(
        grads, torch.autograd.grad(in_blocks, (vectors, weight, bias)), strict=True
    ):
        torch.testing.assert_close(one, two)


def test_blocks_do_not_change_likelihoods(monkeypatch):
    softmax = Softmax(50, 8).double()
    torch.nn.init.normal_(softmax.bias)
    vectors, targets = torch.randn(23, 8).double(), torch.randint(50, (23,))
    expected = softmax(vectors)[torch.arange(23), targets]
    monkeypatch.setattr("elmokit.model.softmax._MIN_ROWS_PER_BLOCK", 5)
    monkeypatch.setattr("elmokit.model.softmax._LOGITS_PER_BLOCK", 0)
    torch.testing.assert_close(softmax.log_likelihood(vectors, targets), expected)
    assert softmax.log_likelihood(vectors[:0], targets[:0]).shape == (0,)
    far = torch.full((2, 8), 1e4).double()
    assert softmax.log_likelihood(far, targets[:2]).isfinite().all()


@pytest.mark.parametrize("softmax", [Softmax(23, 16), AdaptiveSoftmax(23, 16, (5, 12))])
def test_probabilities_sum_to_one_and_match_likelihoods(softmax):
    vectors, targets = torch.randn(7, 16), torch.arange(7) * 3
    with torch.no_grad():
        logs = softmax(vectors)
        torch.testing.assert_close(logs.exp().sum(1), torch.ones(7))
        torch.testing.assert_close(
            softmax.log_likelihood(vectors, targets), logs.gather(1, targets[:, None])[:, 0]
        )
    assert softmax(vectors.view(7, 1, 16)).shape == (7, 1, 23)
    assert softmax.num_words == 23
