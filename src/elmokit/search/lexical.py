"""The lexical part of an index: content words, terms, their frequencies, and BM25."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

from elmokit.errors import InputError, needs_extra
from elmokit.pooling import is_word
from elmokit.vocab import Vocabulary
from elmokit.whitening import Whitening

NO_STEMMER = "none"

# Snowball's stemmers for the languages that Moses' tokenizers may be named with.
_STEMMERS = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german",
    "el": "greek", "en": "english", "es": "spanish", "et": "estonian", "eu": "basque",
    "fa": "persian", "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi",
    "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian",
    "lt": "lithuanian", "ne": "nepali", "nl": "dutch", "no": "norwegian", "pl": "polish",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish",
    "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip

# BM25's constants, the usual ones: of four pairs the best on SQuAD's train part.
SATURATION, LENGTH_SHARE = 1.2, 0.75  # k1 and b

_MAX_TERM_CHARACTERS = 100
_CACHE_SIZE = 2**17  # words

MOST_FREQUENT = 50  # words of a model's vocabulary, which are function words in any language

_ACRONYMS = frozenset({"US", "IT", "WHO"})  # not the stop words that are spelled like them
ENGLISH_STOP_WORDS = frozenset(
    """
    a about above after again against ago all also although am among an and another any anybody
    anyone anything are aren't around as at be became because become been before behind being below
    beside between both but by can can't cannot could couldn't did didn't do does doesn't doing
    don't down during each either else enough etc even ever every everybody everyone everything few
    for from further had hadn't has hasn't have haven't having he her here hers herself him himself
    his how however i if in indeed instead into is isn't it its itself just least less let lot lots
    many may me might mine more most much must my myself neither never no nobody none nor not
    nothing now of off often on once one only onto or other others otherwise our ours ourselves out
    over own per perhaps quite rather really same shall she should shouldn't since so some somebody
    someone something still such than that the their theirs them themselves then there therefore
    these they this those though through thus to together too toward towards under unless until up
    upon us very was wasn't we were weren't what whatever when where whether which while who whoever
    whom whose why will with within without won't would wouldn't yet you your yours yourself
    yourselves
    's 't 'd 'll 'm 're 've n't s t d ll m re ve ca wo ain
    """.split()  # noqa: SIM905  a list of words is easier to edit; last, parts of contractions
)


@dataclass(frozen=True)
class LexicalPart:
    """How the lexical part of an index was made: the stemmer, and the whitening of words.

    The whitening is that of context-free vectors, by which words are compared.
    """

    stemmer: str
    word_whitening: Whitening


@dataclass(frozen=True)
class TermStatistics:
    """What BM25 knows of an index: how many passages have each term of a query."""

    passages: int
    average_length: float  # terms
    frequencies: Mapping[str, int]
    stemmer: str | None = None  # that of the lexical part at this moment

    def weight(self, term: str) -> float:
        """The inverse document frequency of a term, as Lucene has it; it is never negative."""
        frequency = self.frequencies.get(term, 0)
        return math.log(1 + (self.passages - frequency + 0.5) / (frequency + 0.5))


class Stemmer:
    """Turns words into terms: in lower case, without punctuation, and without their endings.

    "Well-being" is two terms, "Paintings" and "painted" are one and the same.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._snowball = None
        if name != NO_STEMMER:
            with needs_extra("the lexical part of an index needs snowballstemmer", "search"):
                import snowballstemmer  # noqa: PLC0415  an extra
            known = snowballstemmer.algorithms()
            if name not in known:
                raise InputError(
                    f"no stemmer is called {name!r}, expected {NO_STEMMER} or one of "
                    f"{', '.join(known)}"
                )
            self._snowball = snowballstemmer.stemmer(name)
        self._lock = Lock()  # a Snowball stemmer is used by one thread at a time
        self._cache: dict[str, tuple[str, ...]] = {}

    def terms(self, words: Iterable[str]) -> list[str]:
        """The terms of words, in order."""
        cache, terms = self._cache, list[str]()
        for word in words:
            known = cache.get(word)
            if known is None:
                known = self._terms_of_word(word)
                if len(cache) >= _CACHE_SIZE:
                    cache.clear()
                cache[word] = known
            terms += known
        return terms

    def _terms_of_word(self, word: str) -> tuple[str, ...]:
        folded = unicodedata.normalize("NFKC", word).casefold()
        parts = [part[:_MAX_TERM_CHARACTERS] for part in _alphanumeric_runs(folded)]
        if self._snowball is None:
            return tuple(parts)
        with self._lock:
            stems = (self._snowball.stemWord(part) for part in parts)
            return tuple(stem for stem in stems if stem)  # in Arabic, a particle has none


@lru_cache
def get_stemmer(name: str) -> Stemmer:
    """The stemmer of that name, one for all who ask for it."""
    return Stemmer(name)


def default_stemmer(tokenizer: str) -> str:
    """The stemmer for text that is tokenized like this: that of Moses' language, or none."""
    match = re.fullmatch("moses(?:-([a-z]+))?", tokenizer)
    return NO_STEMMER if match is None else _STEMMERS.get(match[1] or "en", NO_STEMMER)


def stop_words_of(tokenizer: str) -> Set[str]:
    """The stop words of text that is tokenized like this: no English ones in other languages."""
    is_foreign = tokenizer.startswith("moses-") and tokenizer != "moses-en"
    return frozenset() if is_foreign else ENGLISH_STOP_WORDS


def bm25(terms: Sequence[str], weights: Mapping[str, float], *, average_length: float) -> float:
    """BM25 of a passage's terms for the weighted terms of a query, as a share.

    1 is the score of a passage of average length that has every term of the query once.
    """
    total = sum(weights.values())
    if not total:
        return 0.0
    relative_length = len(terms) / max(average_length, 1.0)
    saturation = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * relative_length)
    counts = Counter(term for term in terms if term in weights)
    score = sum(weights[term] * count / (count + saturation) for term, count in counts.items())
    return (SATURATION + 1) * score / total


def is_content_word(
    word: str, vocabulary: Vocabulary | None = None, *, stop_words: Set[str] = ENGLISH_STOP_WORDS
) -> bool:
    """Whether a word has meaning of its own: no punctuation, and no stop word.

    Stop words are those of a list, and the most frequent words of the model's vocabulary.
    """
    folded = word.lower().replace("’", "'")
    if not is_word(word):
        return False
    if word in _ACRONYMS:
        return True
    if folded in stop_words:
        return False
    if vocabulary is None or folded not in vocabulary:
        return True
    return len(vocabulary) <= MOST_FREQUENT or int(vocabulary.ids([folded])[0]) >= MOST_FREQUENT


def _alphanumeric_runs(text: str) -> list[str]:
    """The runs of letters and digits, with the marks that belong to letters in many scripts."""
    if text.isalnum():
        return [text]
    runs = "".join(
        character if character.isalnum() or unicodedata.category(character)[0] == "M" else " "
        for character in text
    ).split()
    return [run for run in runs if any(map(str.isalnum, run))]
