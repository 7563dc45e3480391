"""Files of text become a corpus to train on."""

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from elmokit.errors import FormatError, InputError, OutputError
from elmokit.formats.record import read_record
from elmokit.lm.blocks import read_blocks
from elmokit.lm.corpus import MARKS, Corpus, CorpusRecord, SourceRecord
from elmokit.lm.merge import Lexicon, Tally, write_corpus
from elmokit.lm.parts import FAULTS, Fault, Part
from elmokit.lm.pool import make_parts
from elmokit.progress import Progress
from elmokit.text.files import STDIN, TextFile, find_files
from elmokit.text.split import check_splitter
from elmokit.text.vocabulary import Vocabulary, read_vocabulary
from elmokit.whole import write_whole

MIN_COUNT = 3  # as in the vocabulary of the 1-Billion-Word corpus

_FAULTS_SHOWN = 20

logger = logging.getLogger(__name__)


def prepare(
    texts: Sequence[str | Path],
    folder: str | Path,
    *,
    split: str = "moses",
    wrapped: bool = False,
    valid: Sequence[str | Path] | None = None,
    min_count: int | None = None,
    max_words: int | None = None,
    vocabulary: str | Path | None = None,
    skip_bad: bool = False,
    workers: int | None = None,
    progress: bool | None = None,
) -> Corpus:
    """Make a corpus of text, in a folder; killed and called again, this goes on.

    `texts` and `valid` are files, globs, folders, and `-` for stdin, plain or packed by gzip, xz
    or Zstandard. A line is a paragraph, or with `wrapped` what stands between blank lines. Held
    out are the texts of `valid`, or where that is None every 500th line up to 50,000 words.

    The vocabulary is a file's, or the words that occur `min_count` times (3), the most frequent
    first, at most `max_words` with `<S>`, `</S>` and `<UNK>`. Lines that cannot be used are an
    error that lists them all, after everything was read; with `skip_bad` they are left out.
    """
    settings = Settings(
        split=split,
        wrapped=wrapped,
        hold_out=valid is None,
        min_count=min_count,
        max_words=max_words,
        vocabulary=None if vocabulary is None else str(vocabulary),
        skip_bad=skip_bad,
    )
    workers = _cores() if workers is None else workers
    if workers < 1:
        raise InputError(f"workers is {workers}, expected 1 or more")
    given = None if vocabulary is None else _read_given(Path(vocabulary))
    files, held_out = find_files(map(str, texts)), find_files(map(str, valid or []))
    if not files:
        raise InputError("no text given; name files, folders, globs, or - for stdin")
    sources = _sources(files, held_out)
    folder = Path(folder)
    if (folder / "corpus.json").exists():
        return _known(folder, sources, settings)

    sizes = [source.bytes for source in sources]
    total = None if None in sizes else sum(size or 0 for size in sizes) // 10**6
    with Progress(total, unit="MB", shown=progress) as shown:
        parts = make_parts(
            read_blocks(files, held_out, wrapped=wrapped, hold_out=settings.hold_out),
            folder / "parts",
            split=split,
            wrapped=wrapped,
            workers=workers,
            progress=shown,
        )
    tally = Tally.of(map(Part.read, parts))
    report_faults(tally.faults, folder, skip_bad=skip_bad)
    lexicon = Lexicon.of(tally, given, min_count=min_count or MIN_COUNT, max_words=max_words)
    write_corpus(
        folder, parts, tally, lexicon, split=split, sources=sources, settings=asdict(settings)
    )
    shutil.rmtree(folder / "parts")
    return Corpus.open(folder)


@dataclass(frozen=True)
class Settings:
    """What, besides the text, decides what a corpus holds."""

    split: str
    wrapped: bool
    hold_out: bool
    min_count: int | None
    max_words: int | None
    vocabulary: str | None
    skip_bad: bool

    def __post_init__(self) -> None:
        check_splitter(self.split)
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


def report_faults(faults: Sequence[Fault], folder: Path, *, skip_bad: bool) -> None:
    """Show the first faults and write all to faults.tsv; InputError unless they are skipped."""
    path = folder / "faults.tsv"
    path.unlink(missing_ok=True)
    if not faults:
        return
    rows = [f"{fault.file}\t{fault.line}\t{fault.kind}\t{fault.found}\n" for fault in faults]
    text = "".join(["file\tline\tfault\tfound\n", *rows])
    write_whole(path, lambda file: file.write(text.encode()))
    for fault in faults[:_FAULTS_SHOWN]:
        logger.warning("%s", fault)
    counts = [(sum(fault.kind == kind for fault in faults), FAULTS[kind]) for kind in FAULTS]
    found = ", ".join(f"{count:,} {says}" for count, says in counts if count)
    if not skip_bad:
        raise InputError(
            f"{len(faults):,} of the text's lines or files cannot be used ({found}), all listed in "
            f"{path}; mend them, or leave them out with --skip-bad"
        )


def _sources(files: list[TextFile], held_out: list[TextFile]) -> list[SourceRecord]:
    both = sorted({file.name for file in files} & {file.name for file in held_out})
    if both:
        raise InputError(f"{both[0]}: both text and held-out text; leave it out of one")
    return [
        SourceRecord(file.name, file.size, file.modified, place >= len(files))
        for place, file in enumerate(files + held_out)
    ]


def _known(folder: Path, sources: list[SourceRecord], settings: Settings) -> Corpus:
    """The corpus that is there already, if it is the one that is asked for."""
    record = read_record(folder / "corpus.json", CorpusRecord, "what elmo prepare wrote")
    from_stdin = any(source.name == STDIN for source in sources)
    if from_stdin or record.sources != sources or record.settings != asdict(settings):
        raise OutputError(
            f"{folder}: holds another corpus already ({record.words:,} words, of other files or "
            "settings); name another folder, or remove this one"
        )
    return Corpus.open(folder)


def _read_given(path: Path) -> Vocabulary:
    vocabulary = read_vocabulary(path)
    if tuple(vocabulary)[: len(MARKS)] != MARKS:
        raise FormatError(
            f"{path}: begins with {' '.join([*vocabulary][: len(MARKS)])}, expected "
            f"{' '.join(MARKS)}, a line each; put them first"
        )
    return vocabulary


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
