"""The occurrences of a word are found in text, with labels, and embedded."""

import numpy as np
import pytest

from elmokit.errors import InputError
from elmokit.word_occurrences import Occurrence, cluster, embed_occurrences, find_occurrences

LINES = ["He played a $ 5 violin .", "", "Plays are long .", "我们 去 银行 play"]
LABELLED = ["music\tHe will play .", "theatre\tThe play 银行 ended .", "music\tThey play on ."]


def find(word, lines, **options):
    return find_occurrences(
        word, lines, name="lines", tokenize=lambda text: [text.split()], **options
    )


def test_occurrences_are_found_by_form_or_by_prefix():
    assert [occurrence.words[occurrence.index] for occurrence in find("Play", LINES)] == ["play"]
    assert [one.word for one in find("play", LINES, prefix=True)] == [
        "played",
        "Plays",
        "play",
    ]
    assert find("play", LABELLED)[1] == Occurrence(
        ("The", "play", "银行", "ended", "."), 1, "theatre"
    )


def test_an_excerpt_has_the_words_around():
    occurrence = Occurrence(("a", "b", "c", "d", "e"), 3)
    assert occurrence.excerpt(1) == "… c d e"
    assert occurrence.excerpt(9) == "a b c d e"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["no such word"], "lines: 'play' does not occur; give --prefix for its inflections"),
        (["music\tplay", "play"], "line 2: expected a label, one tab and a text"),
        (["play", "music\tplay"], "line 2: expected no tab"),
        (["a\tb\tplay"], "line 1: expected a label, one tab"),
    ],
)
def test_lines_that_mix_labels_and_none_are_refused(lines, message):
    with pytest.raises(InputError, match=message):
        find("play", lines)


def test_the_vectors_of_occurrences_are_those_of_embed(model):
    occurrences = find("play", LABELLED)
    vectors = embed_occurrences(model, occurrences)
    assert vectors.shape == (3, 3, 12)
    sentence = model.embed([list(occurrences[1].words)])[0]
    np.testing.assert_allclose(vectors[:, 1], sentence[:, 1], atol=2e-6)


def test_clusters_that_are_far_apart_are_found():
    random = np.random.default_rng(1)
    centres = random.standard_normal((4, 6)) * 30
    vectors = (centres[np.arange(60) % 4] + random.standard_normal((60, 6))).astype(np.float32)
    assert cluster(vectors, clusters=4).tolist() == [n % 4 for n in range(60)]


def test_clusters_are_numbered_by_appearance_and_follow_from_the_seed():
    vectors = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    numbers = cluster(vectors, clusters=5, seed=2)
    assert [*dict.fromkeys(numbers.tolist())] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(numbers, cluster(vectors, clusters=5, seed=2))


def test_identical_vectors_are_one_cluster():
    assert set(cluster(np.ones((4, 2), np.float32), clusters=2).tolist()) == {0}


def test_more_clusters_than_vectors_are_refused():
    with pytest.raises(InputError, match="clusters is 5, expected 1 to 4"):
        cluster(np.ones((4, 2), np.float32), clusters=5)
