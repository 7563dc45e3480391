import lzma
import random
import re
import subprocess
import sys
import time
from itertools import islice

import pytest
import sacremoses
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import ConfigError, InputError
from elmokit.tokenizers import TOKENIZERS, MosesTokenizer, get_tokenizer, register_tokenizer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I didn't go.", ["I", "didn", "'t", "go", "."]),
        ("“Plain” quotes", ['"', "Plain", '"', "quotes"]),
        ("it’s 3,000 [sic] & <b>", ["it", "'s", "3,000", "[", "sic", "]", "&", "<", "b", ">"]),
        ("U.S. dogs' wait-and-see", ["U.S.", "dogs", "'", "wait-and-see"]),
        ("", []),
    ],
)
def test_moses_tokenizes_as_in_the_billion_word_corpus(text, words):
    assert get_tokenizer("moses").tokenize(text) == words


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("He left. She stayed.", ["He left.", "She stayed."]),
        (
            "Dr. J. Smith saw the U.S. in May. He won.",
            ["Dr. J. Smith saw the U.S. in May.", "He won."],
        ),
        ('She said "No." Then she left!', ['She said "No."', "Then she left!"]),
        ('"Why?" he asked. (Nobody knew.)', ['"Why?" he asked.', "(Nobody knew.)"]),
        ("It was No. 5. No. It was not.", ["It was No. 5.", "No.", "It was not."]),
        ("It cost 3.5 million. 2 men paid...", ["It cost 3.5 million.", "2 men paid..."]),
        ("one line\ngoes on\n\na paragraph", ["one line goes on", "a paragraph"]),
        ("他走了。你好吗？很好！", ["他走了。", "你好吗？", "很好！"]),
        ("e.g. this", ["e.g. this"]),
        ("  \n\n ", []),
    ],
)
def test_moses_splits_sentences(text, sentences):
    assert get_tokenizer("moses").split_sentences(text) == sentences


def test_sentence_splitting_loses_no_character(shared):
    with lzma.open(shared / "data/lm/en/wikipedia_a.valid.txt.xz", "rt", encoding="utf-8") as file:
        text = file.read(300_000)
    sentences = get_tokenizer("moses").split_sentences(text)
    assert len(sentences) > 1000
    assert re.sub(r"\s", "", "".join(sentences)) == re.sub(r"\s", "", text)


def test_a_long_run_of_stops_takes_linear_time():
    started = time.perf_counter()
    assert len(get_tokenizer("moses").split_sentences("." * 200_000 + " A" + "!" * 200_000)) == 2
    assert time.perf_counter() - started < 5


def test_scripts_without_capitals_are_split_into_sentences():
    assert len(get_tokenizer("moses").split_sentences("هل جاء؟ نعم. جاء أمس.")) == 3
    assert len(get_tokenizer("moses").split_sentences("वह आया। वह गया।")) == 2


def test_spaces_splits_at_plain_spaces_and_tabs_only():
    tokenizer = get_tokenizer("spaces")
    assert tokenizer.tokenize("a  b\tc\u00a0d\u3000e") == ["a", "b", "c\u00a0d\u3000e"]
    assert tokenizer.split_sentences("a b\n\nc\u2028d\n") == ["a b", "c\u2028d"]


def test_characters_makes_every_character_a_word():
    tokenizer = get_tokenizer("characters")
    assert tokenizer.tokenize("SEQ WENCE") == list("SEQWENCE")
    assert tokenizer.split_sentences("MK\nLV\n") == ["MK", "LV"]
    assert tokenizer.split_sentences("他说：“好！”我走了。") == ["他说：“好！”", "我走了。"]


def test_jieba_finds_chinese_words_and_sentences():
    pytest.importorskip("rjieba")
    tokenizer = get_tokenizer("jieba")
    sentences = tokenizer.split_sentences("我来到北京清华大学。 Hello world？\n 好")
    assert [tokenizer.tokenize(sentence) for sentence in sentences] == [
        ["我", "来到", "北京", "清华大学", "。"],
        ["Hello", "world", "？"],
        ["好"],
    ]


def test_icu_finds_words_without_spaces():
    pytest.importorskip("icu4py")
    tokenizer = get_tokenizer("icu")
    sentences = tokenizer.split_sentences("😀 ภาษาไทยง่ายมาก Ok\n今日は、いい天気ですね。 It's 3.5!")
    assert [tokenizer.tokenize(sentence) for sentence in sentences] == [
        ["😀", "ภาษา", "ไทย", "ง่าย", "มาก", "Ok"],
        ["今日", "は", "、", "いい", "天気", "です", "ね", "。"],
        ["It's", "3.5", "!"],
    ]


@given(text=st.text())
@pytest.mark.parametrize(
    ("name", "package"), [("characters", "re"), ("jieba", "rjieba"), ("icu", "icu4py")]
)
def test_tokenizers_without_spaces_lose_only_white_space(name, package, text):
    pytest.importorskip(package)
    tokenizer = get_tokenizer(name)
    words = [word for s in tokenizer.split_sentences(text) for word in tokenizer.tokenize(s)]
    assert "".join("".join(words).split()) == "".join(text.split())


@pytest.mark.parametrize(("name", "package"), [("jieba", "rjieba"), ("icu", "icu4py")])
def test_a_missing_package_is_named(monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs {package}: pip install 'elmokit\[{name}\]'"):
        TOKENIZERS[name].create()


def test_a_letter_after_an_apostrophe_is_not_an_initial():
    text = "He didn't. She did. 'J. Smith' wrote it."
    assert get_tokenizer("moses").split_sentences(text) == [
        "He didn't.",
        "She did.",
        "'J. Smith' wrote it.",
    ]


def test_languages_have_their_own_abbreviations():
    text = "Das ist z.B. Dr. Meier. Er kam am 3. Mai."
    assert get_tokenizer("moses-de").split_sentences(text)[0] == "Das ist z.B. Dr. Meier."


def test_an_unknown_name_is_refused():
    for name in ("nltk", "moses-english", "spaces-de"):
        with pytest.raises(ConfigError, match=f"called '{name}', expected one of moses, "):
            get_tokenizer(name)


def test_a_tokenizer_is_added_by_one_decorator(monkeypatch):
    monkeypatch.setattr("elmokit.tokenizers.TOKENIZERS", {**TOKENIZERS})

    @register_tokenizer("letters-LANGUAGE", "for a test")
    class Letters(MosesTokenizer):
        pass

    assert isinstance(get_tokenizer("letters-de"), Letters)


def test_only_moses_imports_sacremoses():
    code = (
        "import sys; from elmokit.tokenizers import get_tokenizer\n"
        "get_tokenizer('spaces').tokenize('a b'); assert 'sacremoses' not in sys.modules\n"
        "get_tokenizer('moses').tokenize('a b'); assert 'sacremoses' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# The chunk cache gives exactly what sacremoses gives.

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
    def __init__(self, language):
        self.normalizer = sacremoses.MosesPunctNormalizer(lang=language)
        self.tokenizer = sacremoses.MosesTokenizer(lang=language)

    def tokenize(self, sentence):
        return self.tokenizer.tokenize(self.normalizer.normalize(sentence), escape=False)


@pytest.fixture(scope="module", params=LANGUAGES)
def both(request):
    return MosesTokenizer(request.param), Sacremoses(request.param)


@settings(max_examples=100)
@given(sentence=st.lists(st.sampled_from(PIECES), max_size=18).map("".join))
def test_any_text_is_tokenized_as_by_sacremoses(both, sentence):
    ours, theirs = both
    assert ours.tokenize(sentence) == theirs.tokenize(sentence)


def test_thousands_of_short_texts_are_tokenized_as_by_sacremoses(both):
    ours, theirs = both
    generator = random.Random(0)
    for _ in range(1000):
        sentence = "".join(generator.choices(PIECES, k=generator.randint(1, 12)))
        assert ours.tokenize(sentence) == theirs.tokenize(sentence), repr(sentence)


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
def test_a_chunk_depends_on_the_next_only_where_moses_does(sentence, words):
    tokenizer = MosesTokenizer("en")
    assert tokenizer.tokenize(sentence) == words
    assert tokenizer.tokenize(sentence) == words  # from the cache


def test_the_cache_is_bounded_and_clearing_it_changes_nothing(monkeypatch):
    tokenizer = MosesTokenizer("en")
    chunks = tokenizer.tokenize.__self__
    monkeypatch.setattr(type(chunks), "_CACHE_SIZE", 8)
    sentences = [f"word{n} U.S. then it's {n},000." for n in range(40)]
    assert [tokenizer.tokenize(s) for s in sentences] == [
        Sacremoses("en").tokenize(s) for s in sentences
    ]
    assert len(chunks._inner_cache) <= 8
    assert len(chunks._last_cache) <= 8


def test_real_text_is_tokenized_as_by_sacremoses_and_mostly_without_it(shared):
    ours, theirs = MosesTokenizer("en"), Sacremoses("en")
    with lzma.open(shared / "data/lm/en/wikipedia_b.valid.txt.xz", "rt", encoding="utf-8") as file:
        sentences = [s for line in islice(file, 400) for s in ours.split_sentences(line)]
    assert len(sentences) > 1000
    assert [ours.tokenize(s) for s in sentences] == [theirs.tokenize(s) for s in sentences]
    chunks = ours.tokenize.__self__
    assert sum(chunks._tokenize_chunks(s) is None for s in sentences) < 0.05 * len(sentences)
