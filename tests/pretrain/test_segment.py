"""Rows cover a window once, in the order of reading, and lanes find their states again."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmokit.pretrain.loss import Segments


@given(lanes=st.integers(1, 6), steps=st.integers(1, 8), seed=st.integers(0, 999))
def test_rows_cover_the_window_and_cut_it_only_where_asked(lanes, steps, seed):
    resets = np.random.default_rng(seed).random((lanes, steps)) < 0.3
    segments = Segments.of(resets)
    assert sorted(segments.tokens.tolist()) == list(range(lanes * steps))
    assert sum(segments.sizes) == lanes * steps
    assert segments.sizes == sorted(segments.sizes, reverse=True)

    # Follow each row through its steps.
    begin = 0
    row_of, place_in_row = {}, {}
    for step, size in enumerate(segments.sizes):
        for row, token in enumerate(segments.tokens[begin : begin + size].tolist()):
            row_of[token], place_in_row[token] = row, step
        begin += size
    for token in range(lanes * steps):
        lane, step = divmod(token, steps)
        assert segments.lanes[row_of[token]] == lane
        if step > 0 and not resets[lane, step]:
            assert row_of[token] == row_of[token - 1]
            assert place_in_row[token] == place_in_row[token - 1] + 1
        else:
            assert place_in_row[token] == 0
            assert segments.fresh[row_of[token]] == resets[lane, step]
    assert [row_of[lane * steps + steps - 1] for lane in range(lanes)] == segments.last.tolist()
