"""Corpus preparation: text files to shards of token ids and a vocabulary."""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from elmokit.atomic import DirectoryLock, write_atomically
from elmokit.config import read_record
from elmokit.errors import FormatError, InputError, OutputError
from elmokit.files import STDIN, find_files
from elmokit.pretrain.bad_lines import FAULTS
from elmokit.pretrain.corpus import MARKS, Corpus, CorpusRecord, SourceRecord
from elmokit.pretrain.line_ranges import read_blocks
from elmokit.pretrain.shard_parts import Part
from elmokit.pretrain.shards import Lexicon, Tally, write_corpus
from elmokit.pretrain.workers import make_parts
from elmokit.progress import Progress
from elmokit.tokenizers import check_tokenizer
from elmokit.vocab import Vocabulary, read_vocabulary

MIN_COUNT = 3  # as in the vocabulary of the 1-Billion-Word corpus

_FAULTS_SHOWN = 20

logger = logging.getLogger(__name__)


def prepare(
    texts: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    tokenizer: str = "moses",
    wrapped: bool = False,
    valid: str | Path | Sequence[str | Path] | None = None,
    min_count: int | None = None,
    max_words: int | None = None,
    vocabulary: str | Path | None = None,
    skip_bad: bool = False,
    workers: int | None = None,
    show_progress_bar: bool | None = None,
) -> Corpus:
    """Make a corpus of text, in a folder; killed and called again, this goes on.

    `texts` and `valid` are files, globs, folders, and `-` for stdin, plain or packed by gzip, xz
    or Zstandard. A line is a paragraph, or with `wrapped` what stands between blank lines. Held
    out are the texts of `valid`, or where that is None every 500th line up to 50,000 words.

    The vocabulary is a file's, or the words that occur `min_count` times (3), the most frequent
    first, at most `max_words` with `<S>`, `</S>` and `<UNK>`. Lines that cannot be used are an
    error that lists them all, after everything was read; with `skip_bad` they are left out.
    """
    settings = PrepareSettings(
        split=tokenizer,
        wrapped=wrapped,
        hold_out=valid is None,
        min_count=min_count,
        max_words=max_words,
        vocabulary=None if vocabulary is None else _fingerprint(Path(vocabulary)),
        skip_bad=skip_bad,
    )
    workers = _cores() if workers is None else workers
    if workers < 1:
        raise InputError(f"workers is {workers}, expected 1 or more")
    given = None if vocabulary is None else _read_given(Path(vocabulary))
    folder = Path(folder)
    names, held_out_names = _listed(texts), _listed(valid or [])
    _check_apart(folder, names + held_out_names)
    files = find_files(names)
    held_out = find_files(names + held_out_names)[len(files) :]
    sources = [SourceRecord(file.name, file.size, file.modified, False) for file in files]
    sources += [SourceRecord(file.name, file.size, file.modified, True) for file in held_out]
    if (folder / "corpus.json").exists():
        return _known(folder, sources, settings)

    folder.mkdir(parents=True, exist_ok=True)
    with DirectoryLock(folder, f"{folder}: another process is preparing it; wait for its end"):
        sizes = [source.bytes for source in sources]
        total = None if None in sizes else sum(size or 0 for size in sizes) // 10**6
        with Progress(total, unit="MB", shown=show_progress_bar) as shown:
            parts = make_parts(
                read_blocks(files, held_out, wrapped=wrapped, hold_out=settings.hold_out),
                folder / "parts",
                split=tokenizer,
                wrapped=wrapped,
                workers=workers,
                progress=shown,
            )
        faults = report_faults(parts, folder, skip_bad=skip_bad)
        tally = Tally.of(map(Part.read, parts))
        lexicon = Lexicon.of(tally, given, min_count=min_count or MIN_COUNT, max_words=max_words)
        if given is not None and not lexicon.falls:
            logger.warning(
                "%s: the text's commonest words do not stand first; a sampled or adaptive softmax "
                "takes a word's place for its frequency",
                vocabulary,
            )
        write_corpus(
            folder,
            parts,
            tally,
            lexicon,
            split=tokenizer,
            faults=faults,
            sources=sources,
            settings=asdict(settings),
        )
        shutil.rmtree(folder / "parts")
        return Corpus.open(folder)


@dataclass(frozen=True)
class PrepareSettings:
    """What, besides the text, decides what a corpus holds."""

    split: str
    wrapped: bool
    hold_out: bool
    min_count: int | None
    max_words: int | None
    vocabulary: str | None  # a digest of the file
    skip_bad: bool

    def __post_init__(self) -> None:
        check_tokenizer(self.split)
        if self.wrapped and not self.split.startswith("moses"):
            raise InputError(
                f"wrapped text split by {self.split!r}, which takes each line for a sentence; "
                "split it by 'moses', or leave out wrapped"
            )
        if self.vocabulary is not None and (self.min_count or self.max_words):
            raise InputError("a vocabulary is given; min_count and max_words cannot change it")
        if self.min_count is not None and self.min_count < 1:
            raise InputError(f"min_count is {self.min_count}, expected 1 or more")
        if self.max_words is not None and self.max_words <= len(MARKS):
            raise InputError(
                f"max_words is {self.max_words}, expected more than the {len(MARKS)} marks "
                f"{' '.join(MARKS)}"
            )


def report_faults(parts: Iterable[Path], folder: Path, *, skip_bad: bool) -> dict[str, int]:
    """How many faults of each kind there are; the first are shown, all go to faults.tsv.

    InputError unless they are to be skipped.
    """
    counts, shown = dict.fromkeys(FAULTS, 0), 0
    path = folder / "faults.tsv"

    def write(file: BinaryIO) -> None:
        nonlocal shown
        file.write(b"file\tline\tfault\tfound\n")
        for fault in chain.from_iterable(map(Part.read_faults, parts)):
            counts[fault.kind] += 1
            file.write(f"{fault.file}\t{fault.line}\t{fault.kind}\t{fault.found}\n".encode())
            if shown < _FAULTS_SHOWN:
                logger.warning("%s", fault)
                shown += 1

    write_atomically(path, write)
    if not shown:
        path.unlink()
    elif not skip_bad:
        found = ", ".join(f"{count:,} {FAULTS[kind]}" for kind, count in counts.items() if count)
        raise InputError(
            f"{sum(counts.values()):,} of the text's lines or files cannot be used ({found}), all "
            f"listed in {path}; mend them, or leave them out with --skip-bad"
        )
    return counts


def _known(folder: Path, sources: list[SourceRecord], settings: PrepareSettings) -> Corpus:
    """The corpus that is there already, if it is the one that is asked for."""
    record = read_record(folder / "corpus.json", CorpusRecord, "what elmo prepare wrote")
    from_stdin = any(source.name == STDIN for source in sources)
    if from_stdin or record.sources != sources or record.settings != asdict(settings):
        raise OutputError(
            f"{folder}: holds another corpus already ({record.words:,} words, of other files or "
            "settings); name another folder, or remove this one"
        )
    shutil.rmtree(folder / "parts", ignore_errors=True)  # left by a run that was killed late
    return Corpus.open(folder)


def _listed(names: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(names)] if isinstance(names, str | Path) else [*map(str, names)]


def _check_apart(folder: Path, names: Sequence[str]) -> None:
    """Refuse to write among the files that are read."""
    if not names:
        raise InputError("no text given; name files, folders, globs, or - for stdin")
    for name in names:
        if Path(name).is_dir() and folder.resolve().is_relative_to(Path(name).resolve()):
            raise InputError(
                f"{folder}: inside {name}, whose files are the text; name a folder elsewhere"
            )


def _read_given(path: Path) -> Vocabulary:
    vocabulary = read_vocabulary(path)
    if tuple(vocabulary)[: len(MARKS)] != MARKS:
        raise FormatError(
            f"{path}: begins with {' '.join([*vocabulary][: len(MARKS)])}, expected "
            f"{' '.join(MARKS)}, a line each; put them first"
        )
    return vocabulary


def _fingerprint(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"{path}: no such file; name a vocabulary, one word a line")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
