"""Training windows against those of bilm-tf, and streams that continue at a position."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import ConfigError
from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.training_windows import Stream
from random_models import make_corpus

# bilm-tf's tests/test_data.py: ids of <S> </S> <UNK> the . in its vocabulary.
VOCABULARY = ["<S>", "</S>", "<UNK>", "the", "."]
SENTENCES = [["the", "unknown", "."], ["th", "."], ["the"]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return Corpus.open(make_corpus(folder, SENTENCES, vocabulary=VOCABULARY))


def as_bilm_tf(ids, corpus):
    """Ids as bilm-tf has them: every word that is not in the vocabulary is <UNK>."""
    return np.where(ids < len(corpus.vocabulary), ids, 2).tolist()


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        (
            "forward",
            [
                ([[0, 3, 2], [0, 2, 4]], [[3, 2, 4], [2, 4, 1]]),
                ([[4, 0, 3], [0, 3, 2]], [[1, 3, 1], [3, 2, 4]]),
            ],
        ),
        (
            "backward",
            [
                ([[1, 4, 2], [1, 4, 2]], [[4, 2, 3], [4, 2, 0]]),
                ([[3, 1, 3], [1, 4, 2]], [[0, 3, 0], [4, 2, 3]]),
            ],
        ),
    ],
)
def test_windows_are_those_of_bilm_tf(corpus, direction, expected):
    stream = Stream(
        corpus.shards, batch_size=2, sequence_length=3, direction=direction, shuffle="none"
    )
    for inputs, targets in expected:
        window = stream.next_window()
        assert as_bilm_tf(window.inputs, corpus) == inputs
        assert as_bilm_tf(window.targets, corpus) == targets


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """A corpus of five shards of sentences of 0 to 9 words, no word twice."""
    count = iter(range(10_000))
    sentences = [[f"w{next(count)}" for _ in range(k * 7 % 10)] for k in range(60)]
    return Corpus.open(make_corpus(tmp_path_factory.mktemp("numbers"), sentences, shards=5))


@pytest.mark.parametrize("shuffle", ["sentences", "shards", "none"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_an_epoch_predicts_every_word_once(numbers, shuffle, direction):
    stream = Stream(
        numbers.shards, batch_size=1, sequence_length=1, direction=direction, shuffle=shuffle
    )
    predictions = numbers.words + numbers.sentences
    seen = [int(stream.next_window().targets[0, 0]) for _ in range(predictions)]
    words = sorted(word for word in seen if word > 2)
    assert words == list(range(3, 3 + numbers.words))
    assert seen.count(1 if direction == "forward" else 0) == numbers.sentences


def test_epochs_differ_in_order_and_seeds_too(numbers):
    def first(seed, skip):
        stream = Stream(numbers.shards, batch_size=1, sequence_length=10, seed=seed)
        windows = [stream.next_window().targets.tolist() for _ in range(skip + 3)]
        return windows[-3:]

    an_epoch = (numbers.words + numbers.sentences) // 10
    assert first(0, 0) != first(1, 0)
    assert first(0, 0) != first(0, an_epoch)
    assert first(0, 0) == first(0, 0)


def test_both_directions_read_the_same_sentences(numbers):
    streams = [
        Stream(numbers.shards, batch_size=3, sequence_length=11, direction=d)
        for d in ("forward", "backward")
    ]
    for _ in range(20):
        forward, backward = (stream.next_window() for stream in streams)
        assert (forward.starts == backward.starts).all()


@given(batch_size=st.integers(1, 7), length=st.integers(1, 9), before=st.integers(0, 60))
def test_a_stream_continues_at_the_position_of_another(numbers, batch_size, length, before):
    first, second = (
        Stream(numbers.shards, batch_size=batch_size, sequence_length=length, seed=5)
        for _ in range(2)
    )
    for _ in range(before):
        first.next_window()
    second.seek(first.position)
    for _ in range(5):
        expected, window = first.next_window(), second.next_window()
        assert (window.inputs == expected.inputs).all()
        assert (window.targets == expected.targets).all()


READ_ALL = """
import resource, sys
from pathlib import Path
from elmokit.pretraining.training_windows import Stream
folder, megabytes = Path(sys.argv[1]), int(sys.argv[2])
shards = sorted(folder.glob("*.npy"))
stream = Stream(shards, batch_size=64, sequence_length=500)
stream.next_window()
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + megabytes * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
while stream.position["epoch"] == 0:
    stream.next_window()
print(sum(shard.stat().st_size for shard in shards) >= 10 * megabytes * 2**20)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_a_corpus_ten_times_larger_than_the_memory_is_streamed(tmp_path):
    sentence = np.append(np.arange(3, 1002), 1)
    np.save(tmp_path / "00000.npy", np.tile(sentence, 1000).astype(np.int32))  # 4 MB
    for shard in range(1, 84):
        os.link(tmp_path / "00000.npy", tmp_path / f"{shard:05}.npy")
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, tmp_path, "32"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize("shuffle", ["sentences", "none"])
def test_parts_read_every_word_once_without_overlap(numbers, shuffle, parts):
    """Of five shards, two parts have two each, three parts one; seven parts share all of them."""
    sentences = []
    for part in range(parts):
        stream = Stream(
            numbers.shards, batch_size=1, sequence_length=1, shuffle=shuffle, part=(part, parts)
        )
        while stream.position["epoch"] == 0:
            sentences.append(int(stream.next_window().targets[0, 0]))
        del sentences[-1]  # the first word of the next epoch
    assert sorted(word for word in sentences if word > 2) == list(range(3, 3 + numbers.words))


@pytest.mark.parametrize(("shards", "parts"), [(5, 4), (4, 4), (1, 4), (7, 2)])
def test_parts_have_equal_shares_of_the_text(tmp_path, shards, parts):
    sentences = [["a", "b", "c"]] * 280
    corpus = Corpus.open(make_corpus(tmp_path / "corpus", sentences, shards=shards))
    epochs = []
    for part in range(parts):
        stream = Stream(corpus.shards, batch_size=1, sequence_length=4, part=(part, parts))
        for _ in range(3 * len(sentences) // parts):
            stream.next_window()
        position = stream.position
        epochs.append(position["epoch"] + position["shard"] / shards)
    assert max(epochs) <= 3
    assert min(epochs) >= 2


def test_a_stream_goes_on_from_the_end_of_an_epoch(numbers):
    stream, other = (Stream(numbers.shards[:1], batch_size=1, sequence_length=1) for _ in range(2))
    for _ in range(len(np.load(numbers.shards[0]))):
        stream.next_window()
    other.seek(stream.position)
    assert other.position["epoch"] == 0
    assert other.next_window().targets == stream.next_window().targets


def test_more_parts_than_sentences_are_refused(numbers):
    stream = Stream(numbers.shards, batch_size=1, sequence_length=1, part=(50, 60))
    with pytest.raises(ConfigError, match="micro_batches is 60"):
        stream.next_window()
