"""Tokenizers: raw text to sentences of words, each by the name that is stored with a model."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from elmokit.errors import ConfigError, needs_extra


class Tokenizer(Protocol):
    """Splits raw text into sentences and words."""

    def tokenize(self, sentence: str) -> list[str]:
        """The words of one sentence."""

    def split_sentences(self, text: str) -> list[str]:
        """The sentences of a text, still as strings."""


@dataclass(frozen=True)
class TokenizerChoice:
    """What can be chosen as a tokenizer."""

    description: str
    create: Callable[..., Tokenizer]
    expects_spaces: bool  # the text has white space between words


# By name, as users type it; LANGUAGE stands for a code such as "de", which `create` is called with.
TOKENIZERS: dict[str, TokenizerChoice] = {}

Factory = TypeVar("Factory", bound=Callable[..., Tokenizer])


def register_tokenizer(
    name: str, description: str, *, expects_spaces: bool = True
) -> Callable[[Factory], Factory]:
    """A decorator that adds a class, or a function that makes a tokenizer, to TOKENIZERS."""

    def register(create: Factory) -> Factory:
        TOKENIZERS[name] = TokenizerChoice(description, create, expects_spaces)
        return create

    return register


@lru_cache
def get_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of that name; ConfigError if there is none."""
    choice, arguments = _lookup(name)
    return choice.create(*arguments)


def expects_spaces(name: str) -> bool:
    """Whether the text for that tokenizer has white space between words."""
    return _lookup(name)[0].expects_spaces


def check_tokenizer(name: str) -> None:
    """Raise ConfigError unless a tokenizer has that name."""
    _lookup(name)


def _lookup(name: str) -> tuple[TokenizerChoice, tuple[str, ...]]:
    for registered, choice in TOKENIZERS.items():
        if match := re.fullmatch(registered.replace("LANGUAGE", "([a-z]{2,3})"), name):
            return choice, match.groups()
    close = get_close_matches(name, TOKENIZERS, 1)
    raise ConfigError(
        f"no tokenizer is called {name!r}, expected one of {', '.join(TOKENIZERS)} "
        "(such as moses-de)" + (f"; did you mean {close[0]}?" if close else "")
    )


def tokenizer_rules(name: str) -> dict[str, Any]:
    """What a program in another language needs to tokenize as the tokenizer of that name does.

    The page that computes in the browser is such a program: tokenizer.js reads this. Raises
    ConfigError for a tokenizer whose rules cannot be written down like this.
    """
    tokenizer = get_tokenizer(name)
    if isinstance(tokenizer, MosesTokenizer):
        return {"kind": "moses", **tokenizer.rules()}
    if name in ("spaces", "characters", "icu"):
        return {"kind": name}
    raise ConfigError(
        f"the tokenizer {name} runs in Python only; choose moses, moses-LANGUAGE, spaces, "
        "characters or icu"
    )


@register_tokenizer("moses-LANGUAGE", "Moses' rules for another language, such as moses-de")
@register_tokenizer("moses", "Moses' rules for English")
class MosesTokenizer:
    """Moses, as it prepared the 1-Billion-Word corpus: punctuation normalised, nothing escaped.

    `didn't` becomes `didn 't`, curly quotes become plain ones.
    """

    def __init__(self, language: str = "en") -> None:
        self._language, self._moses = language, _Sacremoses(language)
        self._splitter = _SentenceSplitter(language)
        self.tokenize = _ChunkTokenizer(self._moses).tokenize
        self.split_sentences = self._splitter.split

    def rules(self) -> dict[str, Any]:
        """The language, its abbreviations, and the classes of characters that the rules name."""
        moses = self._moses
        return {
            "language": self._language,
            "classes": moses.character_classes(),
            "prefixes": sorted(moses.abbreviations),
            "numericPrefixes": sorted(moses.abbreviations_before_numbers),
            "sentences": self._splitter.rules(),
        }


@register_tokenizer("spaces", "text that is tokenized already, a sentence on each line")
class WhitespaceTokenizer:
    """Text that is already tokenized: a sentence a line, words between plain spaces and tabs.

    Other white space, such as U+00A0, is part of a word.
    """

    def tokenize(self, sentence: str) -> list[str]:
        return split_on_whitespace(sentence)

    def split_sentences(self, text: str) -> list[str]:
        return [line for line in text.split("\n") if line.strip(" \t\r")]


@register_tokenizer("characters", "every character is a word", expects_spaces=False)
class CharacterTokenizer:
    """Every character is a word, white space is dropped; a sentence ends as in `jieba`."""

    def tokenize(self, sentence: str) -> list[str]:
        return [character for character in sentence if not character.isspace()]

    def split_sentences(self, text: str) -> list[str]:
        return _split_chinese_sentences(text)


@register_tokenizer("jieba", "Chinese words; needs elmokit[jieba]", expects_spaces=False)
class JiebaTokenizer:
    """Chinese text, cut into words by jieba; a sentence ends at 。！？ or at the end of a line."""

    def __init__(self) -> None:
        with needs_extra("the tokenizer jieba needs rjieba", "jieba"):
            import rjieba  # noqa: PLC0415  reads its dictionary
        self._cut: Callable[[str], list[str]] = rjieba.cut

    def tokenize(self, sentence: str) -> list[str]:
        return [word for word in self._cut(sentence) if not word.isspace()]

    def split_sentences(self, text: str) -> list[str]:
        return _split_chinese_sentences(text)


@register_tokenizer("icu", "words of any language; needs elmokit[icu]", expects_spaces=False)
class ICUTokenizer:
    """Words and sentences by the rules of Unicode and ICU's dictionaries.

    The dictionaries are for Burmese, Chinese, Japanese, Khmer, Lao and Thai.
    """

    def __init__(self) -> None:
        with needs_extra("the tokenizer icu needs icu4py", "icu"):
            from icu4py import breakers  # noqa: PLC0415  an extra
        self._words: Callable[[str, str], Iterable[str]] = breakers.WordBreaker
        self._sentences: Callable[[str, str], Iterable[str]] = breakers.SentenceBreaker

    def tokenize(self, sentence: str) -> list[str]:
        return [word for word in self._words(sentence, _ROOT_LOCALE) if not word.isspace()]

    def split_sentences(self, text: str) -> list[str]:
        sentences = (sentence.strip() for sentence in self._sentences(text, _ROOT_LOCALE))
        return [sentence for sentence in sentences if sentence]


_ROOT_LOCALE = "und"
_CHINESE_END = r"[。！？｡]+[”’」』）》】]*"


def _split_chinese_sentences(text: str) -> list[str]:
    """The sentences that end at 。！？, and quotes closed after them, or at the end of a line."""
    lines = re.sub(f"({_CHINESE_END})", r"\1\n", text).splitlines()
    return [line for line in lines if line.strip()]


def split_on_whitespace(text: str) -> list[str]:
    """The words between plain spaces and tabs."""
    return re.findall("[^ \t\r\n]+", text)


PENN_TREEBANK_SYMBOLS = {
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}",
    "``": '"', "''": '"',
}  # fmt: skip
STRAIGHT_QUOTES = str.maketrans("“”„«»‘’‚´`", '"' * 5 + "'" * 5)

# What treebanks write, and what Moses makes of the same text.
_MOSES_WORDS = PENN_TREEBANK_SYMBOLS | {"—": "-", "--": "-", "…": "..."}
_MOSES_CHARACTERS = STRAIGHT_QUOTES | {ord("–"): ord("-")}


def respell(words: tuple[str, ...], tokenizer: str) -> tuple[str, ...]:
    """As many words, in the spelling that a model with this tokenizer knows.

    Treebanks and spaCy write do n't, which Moses splits as don 't, and have more kinds of quotes
    and dashes. A biLM trained on text tokenized by Moses has never seen these.
    """
    if not tokenizer.startswith("moses"):
        return words
    spelled = [_MOSES_WORDS.get(word, word.translate(_MOSES_CHARACTERS)) for word in words]
    for position, word in enumerate(spelled[1:], 1):
        if word.lower() == "n't":
            spelled[position - 1] += word[0]
            spelled[position] = word[1:]
    return tuple(spelled)


class _Sacremoses:
    """sacremoses for a language: one substitution after another over the whole sentence."""

    def __init__(self, language: str) -> None:
        import sacremoses  # noqa: PLC0415  takes half a second; other tokenizers do without

        self._normalizer = sacremoses.MosesPunctNormalizer(lang=language)
        self._tokenizer = tokenizer = sacremoses.MosesTokenizer(lang=language)
        self.alphanumeric: str = tokenizer.IsAlnum  # letters and digits, inside of a [class]
        self.lower_case = frozenset[str](tokenizer.IsLower)
        # A full stop belongs to the abbreviation before it, to these only before a number.
        self.abbreviations_before_numbers = frozenset[str](tokenizer.NUMERIC_ONLY_PREFIXES)
        self.abbreviations = (
            frozenset[str](tokenizer.NONBREAKING_PREFIXES) - self.abbreviations_before_numbers
        )
        self.stops_enter_quotes = language == "en"  # `".` becomes `."`
        self.stops_leave_quotes = language in ("de", "es", "fr")  # `."` becomes `".` before more

    def character_classes(self) -> dict[str, str]:
        """The classes of letters and digits, as ranges for the [] of a regular expression."""
        tokenizer = self._tokenizer
        return {
            "alnum": _ranges(tokenizer.IsAlnum),
            "alpha": _ranges(tokenizer.IsAlpha),
            "number": _ranges(tokenizer.IsN),
            "lower": _ranges(tokenizer.IsLower),
        }

    def tokenize(self, sentence: str) -> list[str]:
        normalized = self._normalizer.normalize(sentence)
        words: list[str] = self._tokenizer.tokenize(normalized, escape=False)
        return words


def _ranges(characters: str) -> str:
    """Characters in order, three or more that follow each other as a range."""
    codes = sorted(set(map(ord, characters)))
    runs = list[tuple[int, int]]()
    for code in codes:
        if runs and runs[-1][1] == code - 1:
            runs[-1] = runs[-1][0], code
        else:
            runs.append((code, code))
    return "".join(
        "".join(map(chr, range(first, last + 1)))
        if last - first < 2
        else f"{chr(first)}-{chr(last)}"
        for first, last in runs
    )


_ChunkWords = list[str] | None  # None: only sacremoses can tell, given the whole sentence


class _ChunkTokenizer:
    """Moses, one chunk of text between two spaces at a time, with a cache: exact, and faster.

    Few of Moses' rules look across a space. A sentence with a chunk to which they could apply is
    left to sacremoses. The words of any other chunk depend on that chunk alone, unless it is the
    last of the sentence, or ends in a full stop: then also on whether the next chunk begins with a
    lower-case letter or a digit. So sacremoses can be given a chunk between two neutral words, and
    its words can be cached; most chunks are so plain that even this is not needed.
    """

    # Moses joins these to what stands before them, or removes the space before them.
    _JOINING = frozenset(")%:;.!?,'`´‘‚’…")
    _NORMALIZED = str.maketrans({**dict.fromkeys("„“”«»", '"'), "–": "-", "—": " - "})
    _CACHE_SIZE, _LONGEST_CACHED = 2**17, 64  # chunks, characters

    def __init__(self, moses: _Sacremoses) -> None:
        self._moses = moses
        self._inner_cache: dict[str, _ChunkWords] = {}
        self._last_cache: dict[str, _ChunkWords] = {}
        self._plain = re.compile(r"([^\s\0-\37.,'`´‘‚’…]+)([,.]?)")
        self._word = re.compile(rf"[{moses.alphanumeric}\-]+|\S")
        self._has_letters = re.compile(rf"[{moses.alphanumeric}\-]")
        self._ambiguous = re.compile(
            r"""[\0-\37]|^\s|\s$|\($|^["„“”«»][,.]"""
            + (rf"|\.[^{moses.alphanumeric}]+$" if moses.stops_leave_quotes else "")
        )

    def tokenize(self, sentence: str) -> list[str]:
        words = self._tokenize_chunks(sentence)
        return self._moses.tokenize(sentence) if words is None else words

    def _tokenize_chunks(self, sentence: str) -> _ChunkWords:
        *inner, last = sentence.split(" ")
        cache, words = self._inner_cache, list[str]()
        for following, chunk in enumerate(inner, 1):
            key = chunk
            if chunk[-1:] == ".":
                next_chunk = inner[following] if following < len(inner) else last
                key = f"{chunk} {self._stand_in(next_chunk)}"
            try:
                chunk_words = cache[key]
            except KeyError:
                chunk_words = self._add(cache, key, self._split(*key.split(" ")))
            if chunk_words is None:
                return None
            words += chunk_words
        try:
            chunk_words = self._last_cache[last]
        except KeyError:
            chunk_words = self._add(self._last_cache, last, self._split(last, ""))
        return None if chunk_words is None else words + chunk_words

    def _stand_in(self, chunk: str) -> str:
        """A word that, after a full stop, has the same effect as this chunk."""
        if chunk[:1] in self._moses.lower_case:
            return "a"
        return "0" if "0" <= chunk[:1] <= "9" else "A"

    def _add(self, cache: dict[str, _ChunkWords], key: str, words: _ChunkWords) -> _ChunkWords:
        if len(cache) >= self._CACHE_SIZE:
            cache.clear()
        if len(key) <= self._LONGEST_CACHED:
            cache[key] = words
        return words

    def _split(self, chunk: str, following: str = "A") -> _ChunkWords:
        """The words of a chunk before a word like `following`, or at the end of a sentence."""
        if not chunk or chunk[0] in self._JOINING or self._ambiguous.search(chunk):
            return None
        # Moses replaces "..." by DOTMULTI and DOTDOTMULTI, and back.
        if (plain := self._plain.fullmatch(chunk)) and "MULTI" not in chunk:
            return self._split_plain(plain[1].translate(self._NORMALIZED), plain[2], following)
        if following:
            return self._moses.tokenize(f"A {chunk} {following}")[1:-1]
        return self._moses.tokenize(f"A {chunk}")[1:]

    def _split_plain(self, body: str, end: str, following: str) -> list[str]:
        """The words of a chunk that has stops and commas only at its end, and no apostrophe.

        A run of letters, digits and hyphens is a word, and so is every other character.
        """
        after_end: list[str] = []
        if end and body[-1] == '"' and self._moses.stops_enter_quotes:
            body, after_end, following = body[:-1], ['"'], '"'
        words: list[str] = self._word.findall(body)
        if end == "." and not body[-1].isspace() and self._keeps_stop(words[-1], following):
            words[-1] += end
        elif end:
            words.append(end)
        return words + after_end

    def _keeps_stop(self, word: str, following: str) -> bool:
        """Whether `word.` stays one word; it never does without letters or digits."""
        return self._has_letters.match(word) is not None and (
            word in self._moses.abbreviations
            or following == "a"
            or (following == "0" and word in self._moses.abbreviations_before_numbers)
        )


class _SentenceSplitter:
    """Ends sentences at . ! ? unless a lower-case letter follows, and at every Chinese 。！？.

    A full stop after an abbreviation (by Moses' list for the language) or an initial ends none.
    """

    _LATIN_END = re.compile(
        r"""(?<![.!?…؟।॥])(?P<stop>[.!?…؟।॥]+)["'”’»)\]]*\s+(?P<next>["'“‘«(\[¿¡]*\w)"""
    )

    def __init__(self, language: str) -> None:
        from sacremoses.corpus import NonbreakingPrefixes  # noqa: PLC0415  as above

        try:
            listed = list(NonbreakingPrefixes().words(language))
        except OSError:
            listed = []  # Moses has no list for this language: only initials are abbreviations
        self._before_numbers = {word.split(" ")[0] for word in listed if "#NUMERIC_ONLY#" in word}
        self._abbreviations = {word for word in listed if "#NUMERIC_ONLY#" not in word}

    def rules(self) -> dict[str, list[str]]:
        """The abbreviations whose full stop ends no sentence."""
        return {
            "abbreviations": sorted(self._abbreviations),
            "beforeNumbers": sorted(self._before_numbers),
        }

    def split(self, text: str) -> list[str]:
        sentences = []
        for paragraph in re.split(r"\n\s*\n", text):
            start = 0
            for end in self._ends(paragraph):
                sentences.append(paragraph[start:end])
                start = end
            sentences.append(paragraph[start:])
        return [" ".join(split_on_whitespace(s)) for s in sentences if s.strip()]

    def _ends(self, text: str) -> Iterator[int]:
        ends = [match.end() for match in re.finditer(_CHINESE_END, text)]
        for match in self._LATIN_END.finditer(text):
            next_letter = match["next"][-1]
            if next_letter.islower():
                continue
            before = text[max(0, match.start() - 40) : match.start()]
            if match["stop"] == "." and self._is_abbreviation(before, next_letter):
                continue
            ends.append(match.start("next"))
        yield from sorted(ends)

    def _is_abbreviation(self, before: str, next_letter: str) -> bool:
        word = re.split(r"[\s(\[\"“]", before)[-1].lstrip("'‘")
        if word in self._before_numbers:
            return next_letter.isdigit()
        # U.S., e.g. and initials: a single letter before the stop, alone or after another stop.
        last_part = word.rsplit(".", 1)[-1]
        return word in self._abbreviations or (len(last_part) == 1 and last_part.isalpha())
