"""Sentences with WordNet senses: SemCor's own mark-up, and Raganato's XML with its gold keys."""

import gzip
import html
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree
from xml.parsers import expat

from elmokit.errors import FormatError
from elmokit.files import TextFile, decompressed
from elmokit.tasks.datasets.example_records import SenseInstance, SenseTaggedSentence
from elmokit.tasks.datasets.lines import Line, check_not_empty, number_lines, numbered_lines
from elmokit.tokenizers import split_on_whitespace

Span = tuple[int, int]  # the first and the last word
Gold = dict[str, tuple[tuple[str, ...], Line]]  # the keys of each instance, and where they stand

_UNPACKING_ERRORS = EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error, tarfile.TarError
_CONTEXT_FILE = b"<contextfile"
_TAR_MAGIC = 257, b"ustar"  # position and value of what marks a tar archive
_WORD = re.compile(r"<(wf|punc)([^>]*)>(.*)</\1>\s*")
_ATTRIBUTE = re.compile(r'([\w-]+)=(?:"([^"]*)"|(\S*))')
_ENTITY = re.compile(r"<!ENTITY\s*(?:%\s*)?(\S*)")
_SENTENCE = re.compile(r'<s snum="?(\w+)"?>\s*')
_ADJECTIVE_POSITION = re.compile(r"\((?:a|p|ip)\)")  # no sense key has it
_OUTER_TAG = re.compile(r"</?(contextfile|context|p)\b[^>]*>\s*")


def read_semcor(path: str | Path) -> Iterator[SenseTaggedSentence]:
    """The sentences of SemCor's archive, packed or not, or of one of its files.

    A line is a word, `<wf cmd=done pos=VB lemma=say wnsn=1 lexsn=2:32:00::>said</wf>`, with or
    without quotes around values, a `<punc>`, or the beginning or end of a file, paragraph or
    sentence. `took_place` becomes two words and one instance. A sense key is `lemma%lexsn`; where
    annotators gave several, all are kept, except those that WordNet 3.0 no longer has (`wnsn=0`).
    Other files of the archive, such as its licence, are skipped.
    """
    sentences = 0
    for name, lines in _context_files(path):
        for sentence in _semcor_sentences(name, lines):
            sentences += 1
            yield sentence
    if not sentences:
        raise FormatError(
            f"{TextFile(str(path)).name}: holds no sentence, expected SemCor's mark-up or an "
            "archive of it; is it the right file?"
        )


def read_raganato(data: str | Path, gold: str | Path) -> list[SenseTaggedSentence]:
    """The sentences of `NAME.data.xml` with the senses of `NAME.gold.key.txt`.

    A token of several words (`<wf>New York</wf>`) is split at its spaces. Every instance needs a
    gold line and every gold line an instance.
    """
    keys, name = _read_gold(gold), TextFile(str(data)).name
    sentences: list[SenseTaggedSentence] = []
    instance_ids: set[str] = set()
    try:
        for sentence_id, tokens in _xml_sentences(data):
            words, instances = list[str](), list[SenseInstance]()
            for line, token in tokens:
                first = len(words)
                words += "".join(token.itertext()).split()
                if len(words) == first:
                    raise line.error(f"an empty <{token.tag}>, expected a word")
                if token.tag == "instance":
                    span = first, len(words) - 1
                    instances.append(_instance(token.attrib, span, keys, line))
                    if (instance_id := instances[-1].id) in instance_ids:
                        raise line.error(f"instance {instance_id} is there twice, expected once")
                    instance_ids.add(instance_id)
            if words:
                own_id = str(len(sentences)) if sentence_id is None else sentence_id
                sentences.append(SenseTaggedSentence(own_id, tuple(words), tuple(instances)))
    except ElementTree.ParseError as error:
        raise FormatError(
            f"{name}, line {error.position[0]}: not well-formed XML "
            f"({expat.ErrorString(error.code)}); was the file cut short?"
        ) from None
    for instance_id, (_, gold_line) in keys.items():
        if instance_id not in instance_ids:
            raise gold_line.error(
                f"{instance_id} is not in {name}, expected an instance of that id; do the files "
                "belong together?"
            )
    return check_not_empty(sentences, data, "the <sentence>s of Raganato's XML")


def _xml_sentences(
    path: str | Path,
) -> Iterator[tuple[str | None, list[tuple[Line, ElementTree.Element]]]]:
    """The id of each sentence, and its tokens (<wf>, <instance>) with their lines."""
    in_sentence, open_token = False, ""
    tokens: list[tuple[Line, ElementTree.Element]] = []
    for line, event, element in _xml_events(path):
        name = element.tag
        if name == "sentence":
            if event == "end":
                yield element.get("id"), tokens
                element.clear()
            in_sentence, tokens = event == "start", []
        elif name in ("wf", "instance"):
            if event == "end":
                tokens.append((line, element))
            elif not in_sentence:
                raise line.error(f"<{name}> in no sentence, expected <sentence> around it")
            elif open_token:
                raise line.error(f"<{name}> within <{open_token}>, expected words alone")
            open_token = name if event == "start" else ""


def _xml_events(path: str | Path) -> Iterator[tuple[Line, str, ElementTree.Element]]:
    """The beginnings and ends of a file's elements, each with its line."""
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    for line in numbered_lines(path):
        if entity := _ENTITY.search(line.text):
            # A few entities that name one another can stand for gigabytes.
            raise line.error(f"declares the entity {entity[1]!r}, expected plain XML without any")
        parser.feed(line.text + "\n")
        yield from ((line, *event) for event in parser.read_events())
    parser.close()  # ParseError if the document is incomplete
    yield from ((line, *event) for event in parser.read_events())


def _instance(token: dict[str, str], span: Span, gold: Gold, line: Line) -> SenseInstance:
    for name in ("id", "lemma", "pos"):
        if not token.get(name):
            raise line.error(f"<instance> without {name}, expected {name}=…")
    if token["id"] not in gold:
        raise line.error(
            f"instance {token['id']} has no line in the gold file, expected one; do the files "
            "belong together?"
        )
    keys, _ = gold[token["id"]]
    return SenseInstance(token["id"], *span, token["lemma"], token["pos"], keys)


def _context_files(path: str | Path) -> Iterator[tuple[str, Iterator[Line]]]:
    """The name and lines of each file of SemCor."""
    file = TextFile(str(path))
    position, magic = _TAR_MAGIC
    try:
        with file.open_compressed() as packed:
            stream = cast(io.BufferedReader, decompressed(file.name, packed))
            if stream.peek(position + len(magic))[position : position + len(magic)] != magic:
                yield Path(file.path).name.split(".")[0], number_lines(stream, file.name)
                return
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    opened = archive.extractfile(member) if member.isfile() else None
                    content = opened.read() if opened is not None else b""
                    if content.lstrip().startswith(_CONTEXT_FILE):
                        name = f"{file.name}, {member.name}"
                        yield Path(member.name).name, number_lines(io.BytesIO(content), name)
    except _UNPACKING_ERRORS as error:
        raise FormatError(
            f"{file.name}: cannot be decompressed ({error}); was the file cut short?"
        ) from None


def _semcor_sentences(name: str, lines: Iterator[Line]) -> Iterator[SenseTaggedSentence]:
    begin: Line | None = None
    sentence_id, words, instances = "", list[str](), list[SenseInstance]()
    for line in lines:
        if begin is not None and (match := _WORD.fullmatch(line.text)):
            first = len(words)
            if not (text := html.unescape(match[3])):
                raise line.error("an empty word, expected one between the tags")
            words += [part for part in text.split("_") if part] or [text]  # took_place
            if "lexsn=" in match[2]:
                pairs = _ATTRIBUTE.findall(match[2])
                attributes = {name: quoted or plain for name, quoted, plain in pairs}
                if keys := _sense_keys(attributes, line):
                    id_and_span = f"{sentence_id}.{len(instances) + 1}", first, len(words) - 1
                    instances.append(
                        SenseInstance(*id_and_span, attributes["lemma"], attributes["pos"], keys)
                    )
        elif begin is None and (match := _SENTENCE.fullmatch(line.text)):
            begin, sentence_id, words, instances = line, f"{name}.{match[1]}", [], []
        elif begin is not None and line.text.strip() == "</s>":
            if words:
                yield SenseTaggedSentence(sentence_id, tuple(words), tuple(instances))
            begin = None
        elif not (line.blank or (begin is None and _OUTER_TAG.fullmatch(line.text))):
            raise line.error(
                f"{line.text[:60]!r}, expected "
                + ("<wf>, <punc> or </s>" if begin else "<s snum=…>, <p> or the end of the file")
            )
    if begin is not None:
        raise begin.error("a sentence without </s>; was the file cut short?")


def _sense_keys(attributes: dict[str, str], line: Line) -> tuple[str, ...]:
    """The sense keys of a token that WordNet 3.0 has."""
    for name in ("lemma", "pos", "wnsn", "lexsn"):
        if not attributes.get(name):
            raise line.error(f"a word with a sense has no {name}, expected {name}=…")
    senses, ranks = attributes["lexsn"].split(";"), attributes["wnsn"].split(";")
    if len(senses) != len(ranks):
        raise line.error(f"{len(senses)} senses in lexsn, but {len(ranks)} in wnsn")
    keys = [f"{attributes['lemma']}%{_ADJECTIVE_POSITION.sub('', sense)}" for sense in senses]
    for key in keys:
        if key.count(":") != 4:
            raise line.error(f"sense {key!r}, expected four colons, as in say%2:32:00::")
    return tuple(key for key, rank in zip(keys, ranks, strict=True) if rank != "0")


def _read_gold(path: str | Path) -> Gold:
    keys: Gold = {}
    for line in numbered_lines(path):
        if line.blank:
            continue
        instance, *senses = split_on_whitespace(line.text)
        if not senses or not all("%" in sense for sense in senses):
            raise line.error(f"{line.text[:60]!r}, expected an id and keys as say%2:32:00::")
        if instance in keys:
            before = keys[instance][1].number
            raise line.error(f"{instance} is there twice, expected once; it is in line {before}")
        keys[instance] = tuple(senses), line
    return keys
