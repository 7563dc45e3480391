"""A CRF agrees with the enumeration of all tag sequences."""

from itertools import pairwise, product

import pytest
import torch

from elmokit.tasks.crf import CRF, forbidden_transitions

TAGS = 3


def make_case(lengths):
    crf = CRF(TAGS)
    for weight in crf.requires_grad_(False).parameters():
        torch.nn.init.normal_(weight)
    steps = max(lengths)
    mask = torch.arange(steps) < torch.tensor(lengths)[:, None]
    return crf, torch.randn(len(lengths), steps, TAGS), mask


def all_scores(crf, scores, length):
    """The score of every sequence of tags of one sentence."""
    scores_by_tags = {}
    for tags in product(range(TAGS), repeat=length):
        score = crf.start_scores[tags[0]] + crf.end_scores[tags[-1]]
        score = score + sum(scores[step, tag] for step, tag in enumerate(tags))
        score = score + sum(crf.transitions[a, b] for a, b in pairwise(tags))
        scores_by_tags[tags] = float(score)
    return scores_by_tags


def test_likelihoods_are_normalized_over_all_sequences():
    lengths = [4, 1, 3]
    crf, scores, mask = make_case(lengths)
    tags = torch.randint(TAGS, mask.shape)
    likelihoods = crf.log_likelihood(scores, tags, mask)
    for row, length in enumerate(lengths):
        every = all_scores(crf, scores[row], length)
        total = torch.logsumexp(torch.tensor([*every.values()]), 0)
        expected = every[tuple(tags[row, :length].tolist())] - total
        torch.testing.assert_close(likelihoods[row], expected)


def test_the_best_tags_are_the_best_of_all_sequences():
    lengths = [1, 5, 2]
    crf, scores, mask = make_case(lengths)
    for row, tags in enumerate(crf.decode(scores, mask)):
        every = all_scores(crf, scores[row], lengths[row])
        assert tuple(tags) == max(every, key=every.__getitem__)


def test_forbidden_transitions_are_never_predicted():
    crf, scores, mask = make_case([6, 6])
    forbidden = torch.zeros(1 + TAGS, TAGS + 1, dtype=torch.bool)
    forbidden[0, 0] = forbidden[1 + 2, 1] = True  # not first; not 1 after 2
    forbidden[1 + 1, TAGS] = True  # not last
    for row, tags in enumerate(crf.decode(scores, mask, forbidden)):
        every = all_scores(crf, scores[row], 6)
        allowed = {
            tags: score
            for tags, score in every.items()
            if tags[0] != 0 and (2, 1) not in pairwise(tags) and tags[-1] != 1
        }
        assert tuple(tags) == max(allowed, key=allowed.__getitem__)


@pytest.mark.parametrize(
    ("scheme", "allowed"),
    [
        ("bioes", {"^O", "^B-A", "^S-A", "OO", "OB-A", "OS-A", "B-AI-A", "B-AE-A", "I-AI-A"}
                  | {"I-AE-A", "E-AO", "E-AB-A", "E-AS-A", "S-AO", "S-AB-A", "S-AS-A", "O$", "E-A$"}
                  | {"S-A$"}),
        ("iob2", {"^O", "^B-A", "OO", "OB-A", "B-AI-A", "B-AB-A", "B-AO", "I-AI-A", "I-AB-A"}
                 | {"I-AO", "O$", "B-A$", "I-A$"}),
    ],
)  # fmt: skip
def test_only_well_formed_spans_are_allowed(scheme, allowed):
    tags = ["O", "B-A", "I-A"] + (["E-A", "S-A"] if scheme == "bioes" else [])
    forbidden = forbidden_transitions(tags, scheme)
    transitions = {
        before + after
        for row, before in enumerate(["^", *tags])
        for column, after in enumerate([*tags, "$"])
        if not forbidden[row, column] and (before, after) != ("^", "$")
    }
    assert transitions == allowed
    other = forbidden_transitions(["B-A", "I-B"], scheme)
    assert other[1, 1]  # I- of another label
