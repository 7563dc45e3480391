"""SemCor's own mark-up becomes sentences with senses of WordNet, out of its archive as it is.

A line is a word, `<wf cmd=done pos=VB lemma=say wnsn=1 lexsn=2:32:00::>said</wf>`, with or without
quotes around values, a `<punc>`, or where a file, a paragraph or a sentence begins or ends.
"""

import gzip
import html
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from elmokit.errors import FormatError
from elmokit.files import TextFile, decompressed
from elmokit.tasks.data.example import Instance, Sensed
from elmokit.tasks.data.source import Line, numbered

_CUT = EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error, tarfile.TarError
_START = b"<contextfile"
_TAR = 257, b"ustar"  # where an archive says that it is one
_WORD = re.compile(r"<(wf|punc)([^>]*)>(.*)</\1>\s*")
_VALUE = re.compile(r'([\w-]+)=(?:"([^"]*)"|(\S*))')
_SENTENCE = re.compile(r'<s snum="?(\w+)"?>\s*')
_PLACE = re.compile(r"\((?:a|p|ip)\)")  # of an adjective, before its noun or after: no key says it
_AROUND = re.compile(r"</?(contextfile|context|p)\b[^>]*>\s*")


def read_semcor(path: str | Path) -> Iterator[Sensed]:
    """The sentences of an archive of SemCor, packed or not, or of one file of it.

    `took_place` becomes two words and one instance; a sense is `lemma%lexsn`, all of them where an
    annotator gave several, but for those that WordNet 3.0 no longer has (`wnsn=0`): a word with no
    other has none. What else an archive holds, such as its licence, is passed over.
    """
    sentences = 0
    for name, lines in _contexts(path):
        for sentence in _sentences(name, lines):
            sentences += 1
            yield sentence
    if not sentences:
        raise FormatError(
            f"{TextFile(str(path)).name}: holds no sentence, expected SemCor's mark-up or an "
            "archive of it; is it the right file?"
        )


def _contexts(path: str | Path) -> Iterator[tuple[str, Iterator[Line]]]:
    """The files of SemCor, each with its name and its lines."""
    file = TextFile(str(path))
    place, mark = _TAR
    try:
        with file.open_compressed() as packed:
            stream = cast(io.BufferedReader, decompressed(file.name, packed))
            if stream.peek(place + len(mark))[place : place + len(mark)] != mark:
                yield Path(file.path).name.split(".")[0], numbered(stream, file.name)
                return
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    held = archive.extractfile(member) if member.isfile() else None
                    content = held.read() if held is not None else b""
                    if content.lstrip().startswith(_START):
                        name = f"{file.name}, {member.name}"
                        yield Path(member.name).name, numbered(io.BytesIO(content), name)
    except _CUT as error:
        raise FormatError(
            f"{file.name}: cannot be decompressed ({error}); was the file cut short?"
        ) from None


def _sentences(name: str, lines: Iterator[Line]) -> Iterator[Sensed]:
    begin: Line | None = None
    own, words, instances = "", list[str](), list[Instance]()
    for line in lines:
        if begin is not None and (match := _WORD.fullmatch(line.text)):
            first = len(words)
            words += _parts(html.unescape(match[3]), line)
            if "lexsn=" in match[2]:
                value = {name: quoted or bare for name, quoted, bare in _VALUE.findall(match[2])}
                if keys := _keys(value, line):
                    name_and_span = f"{own}.{len(instances) + 1}", first, len(words) - 1
                    instances.append(Instance(*name_and_span, value["lemma"], value["pos"], keys))
        elif begin is None and (match := _SENTENCE.fullmatch(line.text)):
            begin, own, words, instances = line, f"{name}.{match[1]}", [], []
        elif begin is not None and line.text.strip() == "</s>":
            if words:
                yield Sensed(own, tuple(words), tuple(instances))
            begin = None
        elif not (line.blank or (begin is None and _AROUND.fullmatch(line.text))):
            raise line.wrong(
                f"{line.text[:60]!r}, expected "
                + ("<wf>, <punc> or </s>" if begin else "<s snum=…>, <p> or the end of the file")
            )
    if begin is not None:
        raise begin.wrong("a sentence without </s>; was the file cut short?")


def _parts(text: str, line: Line) -> list[str]:
    """The words of what is marked as one: `took_place`."""
    if not text:
        raise line.wrong("an empty word, expected one between the tags")
    return [part for part in text.split("_") if part] or [text]


def _keys(value: dict[str, str], line: Line) -> tuple[str, ...]:
    """The senses of a word that WordNet 3.0 has."""
    for name in ("lemma", "pos", "wnsn", "lexsn"):
        if not value.get(name):
            raise line.wrong(f"a word with a sense has no {name}, expected {name}=…")
    senses, ranks = value["lexsn"].split(";"), value["wnsn"].split(";")
    if len(senses) != len(ranks):
        raise line.wrong(f"{len(senses)} senses in lexsn, but {len(ranks)} in wnsn")
    keys = [f"{value['lemma']}%{_PLACE.sub('', sense)}" for sense in senses]
    for key in keys:
        if key.count(":") != 4:
            raise line.wrong(f"sense {key!r}, expected four colons, as in say%2:32:00::")
    return tuple(key for key, rank in zip(keys, ranks, strict=True) if rank != "0")
