"""Coreference: documents in CoNLL-2012 columns, and the ambiguous pronouns of GAP.

A CoNLL-2012 document stands between `#begin document (NAME); part 0` and `#end document`, with a
blank line after each sentence. The fourth column is the word, the last one the mentions that begin
and end at it: `(3` opens a mention of cluster 3, `3)` closes the one opened last, `(3)` does both,
`|` separates several; `-`, `_` or nothing means none. Columns are separated by tabs or spaces.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from elmokit.tasks.datasets.alignment import Offsets, align, words_overlapping
from elmokit.tasks.datasets.example_records import Document, GapExample, Tokenize, Words
from elmokit.tasks.datasets.lines import File, Line, blocks_of, numbered_lines, parse_whole_number
from elmokit.tokenizers import get_tokenizer, split_on_whitespace

Clusters: TypeAlias = tuple[tuple[tuple[int, int], ...], ...]  # of mentions (first, last)

_WORD, _MIN_COLUMNS = 3, 5
_BEGIN = re.compile(r"#begin document \((?P<name>.*)\);(?: part (?P<part>[0-9]{1,9}))?\s*")
_MENTION = re.compile(r"(?P<opens>\()?(?P<cluster>[0-9]+)(?P<closes>\))?")
_GAP_COLUMNS = (
    "ID", "Text", "Pronoun", "Pronoun-offset", "A", "A-offset", "A-coref", "B", "B-offset",
    "B-coref", "URL",
)  # fmt: skip
_BOOLEANS = {"TRUE": True, "True": True, "FALSE": False, "False": False}


def read_coreference(file: File, tokenize: Tokenize) -> list[Document] | list[GapExample]:
    """The documents of a file in CoNLL-2012 columns, or the examples of one of GAP.

    Documents have all their clusters, those of a single mention too. The texts of GAP are tokenized
    by `tokenize`; a pronoun or a name that does not begin and end at word boundaries is widened to
    full words.
    """
    lines = [*numbered_lines(file)]
    if lines and lines[0].text.split("\t")[:2] == [*_GAP_COLUMNS[:2]]:
        return _gap_examples(lines, tokenize)
    return [*_documents(lines)]


def tokenize_sentences(text: str, tokenize: Tokenize) -> tuple[Words, ...]:
    """The sentences of a raw text, split by Moses' rules, then tokenized; none is empty."""
    sentences = get_tokenizer("moses").split_sentences(text)
    tokenized = (tuple(tokenize(sentence)) for sentence in sentences)
    return tuple(words for words in tokenized if words)


def _documents(lines: Iterable[Line]) -> Iterator[Document]:
    begin: tuple[Line, re.Match[str]] | None = None
    body: list[Line] = []
    for line in lines:
        if line.text.startswith("#begin document"):
            if begin is not None:
                raise line.error("a document begins within one, expected #end document before it")
            if (match := _BEGIN.fullmatch(line.text)) is None:
                raise line.error(f"{line.text!r}, expected #begin document (NAME); part 000")
            begin, body = (line, match), []
        elif line.text.startswith("#end document"):
            if begin is None:
                raise line.error("a document ends, but none has begun; is #begin document missing?")
            sentences, clusters = _sentences_and_clusters(body)
            if not sentences:
                raise begin[0].error("a document without a word, expected some; remove it")
            yield Document(begin[1]["name"], int(begin[1]["part"] or 0), sentences, clusters)
            begin = None
        elif begin is not None:
            body.append(line)
        elif not line.blank and not line.text.startswith("#"):
            raise line.error(f"{line.text[:40]!r} in no document, expected #begin document first")
    if begin is not None:
        raise begin[0].error("#end document is missing; was the file cut short?")


def _sentences_and_clusters(lines: Iterable[Line]) -> tuple[tuple[Words, ...], Clusters]:
    sentences: list[Words] = []
    word_lines: list[tuple[Line, str]] = []  # of each word, with its last column
    for block in blocks_of(lines):
        columns, words = 0, []
        for line in block:
            has_tabs = "\t" in line.text
            row = line.text.split("\t") if has_tabs else split_on_whitespace(line.text)
            if len(row) < _MIN_COLUMNS or len(row) != (columns or len(row)):
                raise line.error(
                    f"{len(row)} columns, expected {columns or f'{_MIN_COLUMNS} or more'}; is a "
                    "column or a blank line missing?"
                )
            if not row[_WORD]:
                raise line.error("an empty word in column 4, expected one")
            columns = len(row)
            words.append(row[_WORD])
            word_lines.append((line, row[-1]))
        sentences.append(tuple(words))
    return tuple(sentences), _clusters(word_lines)


def _clusters(word_lines: Iterable[tuple[Line, str]]) -> Clusters:
    """The clusters of mentions, sorted, from the last column of each word's line."""
    opened: dict[str, list[tuple[int, Line]]] = defaultdict(list)
    cluster_of: dict[tuple[int, int], str] = {}
    for position, (line, cell) in enumerate(word_lines):
        for text in () if cell in ("", "-", "_") else cell.split("|"):
            match = _MENTION.fullmatch(text)
            if match is None or not (match["opens"] or match["closes"]):
                raise line.error(f"mention {text!r}, expected (3, 3) or (3), | between several")
            open_mentions = opened[match["cluster"]]
            if match["opens"]:
                open_mentions.append((position, line))
            if not match["closes"]:
                continue
            if not open_mentions:
                raise line.error(
                    f"{text!r} closes a mention that was not opened; is a ( missing before it?"
                )
            mention = open_mentions.pop()[0], position
            cluster = cluster_of.setdefault(mention, match["cluster"])
            if cluster != match["cluster"]:
                raise line.error(
                    f"words {mention[0]} to {position} are in cluster {cluster} and in "
                    f"{match['cluster']}, expected one; remove a mention"
                )
    for cluster, open_mentions in opened.items():
        if open_mentions:
            raise open_mentions[-1][1].error(
                f"a mention of cluster {cluster} is not closed in its document, expected "
                f"{cluster}) after it"
            )
    clusters: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for mention, cluster in sorted(cluster_of.items()):
        clusters[cluster].append(mention)
    return tuple(sorted(map(tuple, clusters.values())))


def _gap_examples(lines: Sequence[Line], tokenize: Tokenize) -> list[GapExample]:
    if lines[0].text.split("\t") != [*_GAP_COLUMNS]:
        expected = " ".join(_GAP_COLUMNS)
        raise lines[0].error(f"{lines[0].text[:60]!r}, expected GAP's header: {expected}")
    examples: dict[str, GapExample] = {}
    for line in lines[1:]:
        if not line.blank:
            example = _gap_example(line, tokenize)
            if example.id in examples:
                raise line.error(f"ID {example.id!r} is there twice, expected once")
            examples[example.id] = example
    return [*examples.values()]


def _gap_example(line: Line, tokenize: Tokenize) -> GapExample:
    row = line.text.split("\t")
    if len(row) != len(_GAP_COLUMNS):
        raise line.error(f"{len(row)} columns between tabs, expected GAP's {len(_GAP_COLUMNS)}")
    cells = dict(zip(_GAP_COLUMNS, row, strict=True))
    sentences = tokenize_sentences(cells["Text"], tokenize)
    words = [word for sentence in sentences for word in sentence]
    offsets = align(words, cells["Text"])
    if not words or offsets is None:
        raise line.error(
            "the words of the text cannot be found in it again, expected the tokenizer to keep "
            "nearly all characters; use another one"
        )
    for column in ("A-coref", "B-coref"):
        if cells[column] not in _BOOLEANS:
            raise line.error(f"{column} {cells[column]!r}, expected TRUE or FALSE")
    is_a, is_b = _BOOLEANS[cells["A-coref"]], _BOOLEANS[cells["B-coref"]]
    if is_a and is_b:
        raise line.error("A-coref and B-coref are both TRUE, expected one of them or none")
    pronoun, a, b = (_words_of(line, cells, column, offsets) for column in ("Pronoun", "A", "B"))
    return GapExample(cells["ID"], sentences, pronoun, a, b, is_a, is_b, cells["Pronoun"])


def _words_of(
    line: Line, cells: dict[str, str], column: str, offsets: list[Offsets]
) -> tuple[int, int]:
    """The first and last words that contain the pronoun or a name."""
    text, offset = cells[column], cells[f"{column}-offset"]
    start = parse_whole_number(offset)
    end = (start or 0) + len(text)
    if start is None or not text or cells["Text"][start:end] != text:
        raise line.error(
            f"{column}-offset {offset[:40]!r}, expected where {text!r} begins in the text, in "
            "characters"
        )
    words = words_overlapping(offsets, start, end)
    if not words:
        raise line.error(f"{column} {text!r} holds no word; use another tokenizer")
    return words[0], words[-1]
