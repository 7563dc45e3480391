"""Cutting chunk by chunk gives exactly what sacremoses gives."""

import lzma
import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from elmokit.tokenizers import MosesSplitter

PIECES = [
    *"aAzéÉß059²½٣中あ",
    *["etc", "No", "Mr", "p", "U", "e.g", "DOTMULTI", "MULTI", "nº", "cm", "ºC", "s", "t", "ﬁ"],
    *"..,,''\"\"`´‘’‚„“”«»–—-…()[]<>:;%?!/$&@#_|\\",
    *["\xa0", "\u2009", "\u200b", "\t", "\x01", "\x1c", "\x7f", "\u3000", "\r", "\u0300", "\ud800"],
    *["''", "...", "--", "😀", "।"],
    *[" "] * 20,
]
LANGUAGES = ["en", "de", "fr", "ru"]


class Sacremoses:
    """The system itself."""

    def __init__(self, language):
        self.normalizer = MosesPunctNormalizer(lang=language)
        self.tokenizer = MosesTokenizer(lang=language)

    def words(self, sentence):
        return self.tokenizer.tokenize(self.normalizer.normalize(sentence), escape=False)


@pytest.fixture(scope="module", params=LANGUAGES)
def both(request):
    return MosesSplitter(request.param), Sacremoses(request.param)


@settings(max_examples=100)
@given(sentence=st.lists(st.sampled_from(PIECES), max_size=18).map("".join))
def test_any_text_is_cut_as_sacremoses_cuts_it(both, sentence):
    ours, theirs = both
    assert ours.tokenize(sentence) == theirs.words(sentence)


def test_thousands_of_short_texts_are_cut_as_sacremoses_cuts_them(both):
    ours, theirs = both
    draw = random.Random(0)
    for _ in range(1000):
        sentence = "".join(draw.choices(PIECES, k=draw.randint(1, 12)))
        assert ours.tokenize(sentence) == theirs.words(sentence), repr(sentence)


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("Mr. Smith", ["Mr.", "Smith"]),
        ("He left. Then", ["He", "left", ".", "Then"]),
        ("He left. then", ["He", "left.", "then"]),
        ("No. 5 and No. Five", ["No.", "5", "and", "No", ".", "Five"]),
        ('He said "no".', ["He", "said", '"', "no", ".", '"']),
        ('("Etc"), 1990–95', ["(", '"', "Etc", '"', ")", ",", "1990-95"]),
        ("dogs' tails are dogs'", ["dogs", "'", "tails", "are", "dogs'"]),
        ("wait ... what...", ["wait", "...", "what", "..."]),
    ],
)
def test_a_chunk_feels_its_neighbour_only_where_moses_says_so(sentence, words):
    splitter = MosesSplitter("en")
    assert splitter.tokenize(sentence) == words
    assert splitter.tokenize(sentence) == words  # from what is kept, too


def test_what_is_kept_is_bounded_and_forgetting_changes_nothing(monkeypatch):
    splitter = MosesSplitter("en")
    monkeypatch.setattr(type(splitter._chunks), "_KEPT", 8)
    sentences = [f"word{n} U.S. then it's {n},000." for n in range(40)]
    assert [splitter.tokenize(s) for s in sentences] == [
        Sacremoses("en").words(s) for s in sentences
    ]
    assert len(splitter._chunks._inner) <= 8
    assert len(splitter._chunks._last) <= 8


def test_real_text_is_cut_as_sacremoses_cuts_it_and_seldom_by_it(shared):
    ours, theirs = MosesSplitter("en"), Sacremoses("en")
    with lzma.open(shared / "data/lm/en/wikipedia_b.valid.txt.xz", "rt", encoding="utf-8") as file:
        sentences = [s for line in islice(file, 400) for s in ours.split_sentences(line)]
    assert len(sentences) > 1000
    assert [ours.tokenize(s) for s in sentences] == [theirs.words(s) for s in sentences]
    assert sum(ours._chunks.words(s) is None for s in sentences) < 0.05 * len(sentences)
