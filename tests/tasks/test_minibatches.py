"""Batches hold every example once, no more words than allowed, in an order of the seed's."""

from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.minibatches import batches_by_length, shuffled_batches

EXAMPLES = st.lists(st.integers(1, 30), max_size=60).map(lambda ls: [("w",) * n for n in ls])


@given(EXAMPLES, st.integers(1, 50), st.integers(0, 3))
def test_every_example_is_in_one_batch(examples, words, seed):
    batches = shuffled_batches(examples, len, words=words, seed=(seed, 0))
    assert sorted(e for batch in batches for e in batch) == sorted(examples)
    assert all(len(b) == 1 or max(map(len, b)) * len(b) <= words for b in batches)
    assert batches == shuffled_batches(examples, len, words=words, seed=(seed, 0))
    placed = list(batches_by_length(examples, len, words=words))
    assert sorted(p for places, _ in placed for p in places) == list(range(len(examples)))
    assert all([examples[p] for p in places] == batch for places, batch in placed)


def test_another_epoch_has_another_order():
    examples = [(str(n),) for n in range(50)]
    one, other = (shuffled_batches(examples, len, words=5, seed=(0, epoch)) for epoch in (0, 1))
    assert one != other
