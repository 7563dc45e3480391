"""A CRF's likelihoods and best tags are those of all sequences counted out one by one."""

from itertools import pairwise, product

import torch

from elmokit.tasks.crf import CRF

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
    found = {}
    for tags in product(range(TAGS), repeat=length):
        score = crf.begin[tags[0]] + crf.end[tags[-1]]
        score = score + sum(scores[step, tag] for step, tag in enumerate(tags))
        score = score + sum(crf.moves[a, b] for a, b in pairwise(tags))
        found[tags] = float(score)
    return found


def test_likelihoods_are_shares_of_all_sequences():
    lengths = [4, 1, 3]
    crf, scores, mask = make_case(lengths)
    tags = torch.randint(TAGS, mask.shape)
    found = crf.log_likelihood(scores, tags, mask)
    for row, length in enumerate(lengths):
        every = all_scores(crf, scores[row], length)
        total = torch.logsumexp(torch.tensor([*every.values()]), 0)
        expected = every[tuple(tags[row, :length].tolist())] - total
        torch.testing.assert_close(found[row], expected)


def test_the_best_tags_are_the_best_of_all_sequences():
    lengths = [1, 5, 2]
    crf, scores, mask = make_case(lengths)
    for row, tags in enumerate(crf.best(scores, mask)):
        every = all_scores(crf, scores[row], lengths[row])
        assert tuple(tags) == max(every, key=every.__getitem__)


def test_forbidden_moves_are_never_made():
    crf, scores, mask = make_case([6, 6])
    forbidden = torch.zeros(1 + TAGS, TAGS, dtype=torch.bool)
    forbidden[0, 0] = forbidden[1 + 2, 1] = True  # not first; not 1 after 2
    for row, tags in enumerate(crf.best(scores, mask, forbidden)):
        every = all_scores(crf, scores[row], 6)
        allowed = {
            tags: score
            for tags, score in every.items()
            if tags[0] != 0 and (2, 1) not in pairwise(tags)
        }
        assert tuple(tags) == max(allowed, key=allowed.__getitem__)
