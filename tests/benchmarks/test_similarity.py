"""benchmarks/similarity.py: WiC and STS-B are read and scored."""

import math

import numpy as np
import pytest

from elmokit.errors import FormatError, InputError
from elmokit.whitening import Whitening

pytestmark = pytest.mark.full

WIC_LINE = "go\tV\t1-0\tMessages go .\tGo there\n"


@pytest.fixture(scope="module")
def similarity(script):
    return script("similarity")


@pytest.fixture
def write(tmp_path):
    def write(text, name="file.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def word_pair(similarity, first, second, same, positions=(0, 0)):
    words = tuple(first.split()), tuple(second.split())
    return similarity.WordInContext("x", "N", *words, positions, same)


def raw_cosines(similarity, vectors):
    return similarity.cosines(vectors, fit_to=vectors, whitening="none")


def test_wic_gives_a_word_in_two_sentences(similarity, write):
    assert similarity.read_wic(write(WIC_LINE, "data"), write("F\n", "gold")) == [
        similarity.WordInContext(
            "go", "V", ("Messages", "go", "."), ("Go", "there"), (1, 0), same=False
        )
    ]


@pytest.mark.parametrize(
    ("data", "gold", "message"),
    [
        ("", "", "data: holds no example"),
        (WIC_LINE * 2, "F\n", r"data, line 2: no line for it in .*gold \(2 lines of data, 1 of"),
        (WIC_LINE, "F\nT\n", "gold, line 2: no line for it in .*data"),
        (WIC_LINE, "yes\n", "gold, line 1: 'yes', expected T or F"),
        ("go\tV\t1-0\tMessages go .\n", "T\n", "data, line 1: 4 columns between tabs, expected 5"),
        (WIC_LINE.replace("V", "X"), "T\n", "data, line 1: word 'go' with part of speech 'X'"),
        (WIC_LINE.replace("1-0", "1"), "T\n", "data, line 1: positions '1', expected two numbers"),
        (
            WIC_LINE.replace("1-0", "1-" + "0" * 5000),
            "T\n",
            "data, line 1: positions '1-00.*', expected two",
        ),
        (WIC_LINE.replace("1-0", "3-0"), "T\n", "data, line 1: position 3 in a sentence of 3"),
    ],
)
def test_malformed_wic_is_refused_with_its_line(similarity, data, gold, message, write):
    with pytest.raises(FormatError, match=message):
        similarity.read_wic(write(data, "data"), write(gold, "gold"))


def test_stsb_ignores_quotes_and_optional_columns(similarity, write):
    line = 'main\tMSR\t2012\t0001\t3.8\t"A man\tA "cat\n'
    more = "main\tMSR\t2012\t0001\t0\tA\tB\tone\ttwo\n"
    assert similarity.read_stsb(write(line + more), str.split) == [
        similarity.ScoredPair(('"A', "man"), ("A", '"cat'), 3.8, ('"A man', 'A "cat')),
        similarity.ScoredPair(("A",), ("B",), 0.0, ("A", "B")),
    ]


@pytest.mark.parametrize("score", ["", "5.5", "-0.1", "nan", "high"])
def test_an_stsb_score_out_of_range_is_refused(similarity, score, write):
    with pytest.raises(FormatError, match=r"line 1: score .*expected a number from 0 to 5"):
        similarity.read_stsb(write(f"a\tb\tc\td\t{score}\tA\tB\n"), str.split)


def test_byte_order_marks_and_crlf_change_nothing(similarity, write):
    def read(change):
        stsb = b"main\tx\ty\t1\t2.5\ta man\ta cat\n"
        wic = write(change(WIC_LINE.encode()), "data"), write(change(b"F\n"), "gold")
        pairs = similarity.read_stsb(write(change(stsb)), str.split)
        return similarity.read_wic(*wic), pairs

    assert read(lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n")) == read(bytes)


def test_published_files_are_read_completely(similarity, shared):
    data = shared / "data" / "tasks"
    for part, of_wic, of_stsb in (("train", 5_428, 5_749), ("dev", 638, 1_500)):
        wic = (data / "wic" / f"{part}.{kind}.txt" for kind in ("data", "gold"))
        assert len(similarity.read_wic(*wic)) == of_wic
        stsb = data / "similarity_stsb" / f"sts-{part}.csv"
        assert len(similarity.read_stsb(stsb, str.split)) == of_stsb


def test_no_threshold_is_better_than_the_best(similarity):
    random = np.random.default_rng(0)
    for digits in [16, 1] * 20:  # all different, and many the same
        values, same = random.random(30).round(digits), random.random(30) < 0.5
        threshold = similarity.best_threshold(values, same)
        correct = ((values >= threshold) == same).sum()
        assert correct == max(((values >= other) == same).sum() for other in [*values, -1, 2])


def test_the_same_context_has_cosine_one_and_another_less(similarity, model):
    same = word_pair(similarity, "a b", "a b", True)
    different = word_pair(similarity, "a b c", "d a b", False, (1, 2))
    cosines = raw_cosines(similarity, similarity.embed_words(model, [same, different]))
    np.testing.assert_allclose(cosines[:, 0], 1, rtol=1e-6)
    assert cosines[0, 1] == pytest.approx(1)  # layer 0 has no context
    assert (cosines[1:, 1] < 0.999).all()


def test_a_shared_mean_is_removed_before_comparing(similarity):
    random = np.random.default_rng(0)
    vectors = (random.standard_normal((1, 2, 500, 6)) + 30).astype(np.float32)
    assert raw_cosines(similarity, vectors).min() > 0.98
    for way in ("centre", "top", "zca"):
        cosines = similarity.cosines(vectors, fit_to=vectors, whitening=way)
        assert abs(cosines.mean()) < 0.1
        assert cosines.min() < -0.5
    white = Whitening.fit_batches(vectors[0], dim=6, method="zca")
    expected = (white.transform(vectors[0, 0]) * white.transform(vectors[0, 1])).sum(-1)
    np.testing.assert_allclose(cosines[0], expected, atol=1e-6)


def test_different_contexts_are_told_apart_above_layer_0(similarity, model):
    pairs = [
        word_pair(similarity, "a b", "a b", True, (1, 1)),
        word_pair(similarity, "a b", "c b", False, (1, 1)),
    ] * 3
    assert similarity.score_words(model, pairs, pairs, whitening="none") == [0.5, 1.0, 1.0]
    with pytest.raises(InputError, match="a threshold needs examples"):
        similarity.score_words(model, [], pairs)


def test_texts_are_ranked_by_the_words_they_share(similarity, model):
    def pair(first, second, score):
        words = tuple(first.split()), tuple(second.split())
        return similarity.ScoredPair(*words, score, ("", ""))

    pairs = [pair("a b c", "a b c", 5), pair("a b c", "c b a", 5), pair("a b c", "x y z", 0)]
    same, shuffled, other = raw_cosines(similarity, similarity.embed_texts(model, pairs))[0]
    assert same == pytest.approx(1)
    assert shuffled == pytest.approx(1)  # layer 0 has no word order
    assert other < 0.999
    dev = [pairs[0], pairs[2]]
    assert similarity.score_texts(model, pairs, dev, whitening="none")[0] == pytest.approx(1)


def test_rank_correlation_depends_on_the_order_only(similarity):
    assert similarity.spearman([1, 2, 3], [1, 10, 100]) == pytest.approx(1)
    assert similarity.spearman([1, 2, 3], [9, 4, 1]) == pytest.approx(-1)
    assert math.isnan(similarity.spearman([1, 2, 3], [2, 2, 2]))
    with pytest.raises(InputError, match="1 predictions for 2 of gold"):
        similarity.spearman([1, 2], [1])
