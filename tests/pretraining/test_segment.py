"""Segments of a window: rows split where their state is reset."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmokit.pretraining.loss import Segments


@given(num_rows=st.integers(1, 6), steps=st.integers(1, 8), seed=st.integers(0, 999))
def test_segments_cover_the_window_and_split_only_at_resets(num_rows, steps, seed):
    resets = np.random.default_rng(seed).random((num_rows, steps)) < 0.3
    segments = Segments.of(resets)
    assert sorted(segments.tokens.tolist()) == list(range(num_rows * steps))
    assert sum(segments.batch_sizes) == num_rows * steps
    assert segments.batch_sizes == sorted(segments.batch_sizes, reverse=True)

    # Follow each segment through its steps.
    begin = 0
    segment_of, step_in_segment = {}, {}
    for step, size in enumerate(segments.batch_sizes):
        for segment, token in enumerate(segments.tokens[begin : begin + size].tolist()):
            segment_of[token], step_in_segment[token] = segment, step
        begin += size
    for token in range(num_rows * steps):
        row, step = divmod(token, steps)
        assert segments.rows[segment_of[token]] == row
        if step > 0 and not resets[row, step]:
            assert segment_of[token] == segment_of[token - 1]
            assert step_in_segment[token] == step_in_segment[token - 1] + 1
        else:
            assert step_in_segment[token] == 0
            assert segments.is_reset[segment_of[token]] == resets[row, step]
    assert [
        segment_of[row * steps + steps - 1] for row in range(num_rows)
    ] == segments.last.tolist()
