"""Minibatches hold every item once and no more words than allowed; the seed decides the order."""

from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.minibatches import minibatches

LENGTHS = st.lists(st.integers(1, 30), max_size=60)


@given(LENGTHS, st.integers(1, 50), st.sampled_from([None, (0, 0), (3, 0)]))
def test_every_item_is_in_one_batch(lengths, words, seed):
    batches = minibatches(lengths, words=words, seed=seed)
    assert sorted(index for batch in batches for index in batch) == [*range(len(lengths))]
    assert all(len(b) == 1 or max(lengths[i] for i in b) * len(b) <= words for b in batches)
    assert batches == minibatches(lengths, words=words, seed=seed)


def test_each_epoch_has_its_own_order():
    first, second = (minibatches([1] * 50, words=5, seed=(0, epoch)) for epoch in (0, 1))
    assert first != second
