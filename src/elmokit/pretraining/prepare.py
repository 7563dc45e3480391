"""Corpus preparation: text files to shards of token ids and a vocabulary."""

import hashlib
import logging
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

from elmokit.atomic import ResumableDirectory
from elmokit.errors import FormatError, InputError, OutputError
from elmokit.files import STDIN, find_files
from elmokit.model_config import read_record
from elmokit.pretraining.corpus import SPECIAL_TOKENS, Corpus, CorpusRecord, SourceRecord
from elmokit.pretraining.shard_writer import CorpusCounts, Lexicon, write_corpus, write_part
from elmokit.pretraining.text_chunks import KINDS, Chunk, read_chunks
from elmokit.progress import Progress
from elmokit.tokenizers import check_tokenizer
from elmokit.vocab import Vocabulary, read_vocabulary

MIN_COUNT = 3  # as in the vocabulary of the 1-Billion-Word corpus

_PART = "parts/{}.npz"
# Parts of another version, left by a killed call, are not used.
_PARTS_VERSION = 3

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
    """Make a corpus of text files, to train on; a call that was killed is resumed by the next one.

    `texts` and `valid` are files, globs, folders, and `-` for stdin, plain or compressed with gzip,
    xz or Zstandard. A line is a paragraph; with `wrapped`, blank lines separate paragraphs. The
    texts of `valid` are held out, or if that is None every 500th line up to 50,000 words.

    The vocabulary is that of a file, or the words that occur `min_count` times (3), the most
    frequent first, at most `max_words` including `<S>`, `</S>` and `<UNK>`. Lines that cannot be
    used are an error that lists them all, after everything was read; `skip_bad` leaves them out.

    Example:
        corpus = elmokit.prepare("text.txt", "corpus", min_count=1)
    """
    given_vocabulary, digest = None, None
    if vocabulary is not None:
        given_vocabulary, digest = _read_vocabulary(Path(vocabulary))
    settings = PrepareSettings(
        tokenizer, wrapped, valid is None, min_count, max_words, digest, skip_bad
    )
    if workers is None:
        from elmokit.threads import usable_cpus  # noqa: PLC0415  (torch; workers need none)

        workers = usable_cpus()
    if workers < 1:
        raise InputError(f"workers is {workers}, expected 1 or more")
    folder = Path(folder)
    names, held_out_names = _as_list(texts), _as_list(valid or [])
    _check_outside(folder, names + held_out_names)
    num_texts = len(find_files(names))
    files = [(f, k >= num_texts) for k, f in enumerate(find_files(names + held_out_names))]
    sources = [SourceRecord(f.name, f.size, f.modified, held_out) for f, held_out in files]
    if (folder / "corpus.json").exists():
        return _open_existing(folder, sources, settings)

    with ResumableDirectory(folder, {}, manifest_name=None, part_name=_PART) as directory:
        sizes = [source.bytes for source in sources if source.bytes is not None]
        total = sum(sizes) // 10**6 if len(sizes) == len(sources) else None  # stdin has none
        with Progress(total, unit="MB", shown=show_progress_bar) as progress:
            chunks = read_chunks(files, wrapped=wrapped, hold_out=settings.hold_out)
            parts = write_parts(chunks, directory, settings, workers=workers, progress=progress)
        bad_lines = folder / "bad_lines.tsv"
        counts = CorpusCounts.of(parts, bad_lines)
        _check_bad_lines(counts, bad_lines, skip_bad=skip_bad)
        lexicon = Lexicon.of(
            counts, given_vocabulary, min_count=min_count or MIN_COUNT, max_words=max_words
        )
        if given_vocabulary is not None and not lexicon.has_frequent_words_first:
            logger.warning(
                "%s: the text's most frequent words are not first; a sampled or adaptive softmax "
                "takes the position of a word for its frequency",
                vocabulary,
            )
        write_corpus(folder, parts, counts, lexicon, sources=sources, settings=asdict(settings))
        directory.clear()
    return Corpus.open(folder)


@dataclass(frozen=True)
class PrepareSettings:
    """What decides the contents of a corpus besides the text, by the names in corpus.json."""

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
                f"wrapped text with the tokenizer {self.split!r}, which takes each line for a "
                "sentence; use 'moses', or leave out wrapped"
            )
        if self.vocabulary is not None and (self.min_count or self.max_words):
            raise InputError("a vocabulary is given; min_count and max_words cannot change it")
        if self.min_count is not None and self.min_count < 1:
            raise InputError(f"min_count is {self.min_count}, expected 1 or more")
        if self.max_words is not None and self.max_words <= len(SPECIAL_TOKENS):
            raise InputError(
                f"max_words is {self.max_words}, expected more than the "
                f"{len(SPECIAL_TOKENS)} special tokens {' '.join(SPECIAL_TOKENS)}"
            )


def _check_bad_lines(counts: CorpusCounts, path: Path, *, skip_bad: bool) -> None:
    """Raise InputError if there are bad lines, unless they are to be skipped."""
    if not (total := sum(counts.bad_lines.values())):
        path.unlink()
    elif not skip_bad:
        kinds = (f"{n:,} {KINDS[kind]}" for kind, n in counts.bad_lines.items() if n)
        raise InputError(
            f"{total:,} of the text's lines or files cannot be used ({', '.join(kinds)}), all "
            f"listed in {path}; correct them, or leave them out with --skip-bad"
        )


def write_parts(
    chunks: Iterable[Chunk],
    directory: ResumableDirectory,
    settings: PrepareSettings,
    *,
    workers: int,
    progress: Progress,
) -> list[Path]:
    """Tokenize chunks, each to a part in a file; returns the files in the order of the chunks.

    A part is named by the contents of its chunk, so those that a killed call left are used. With
    one worker or a single chunk, all work is done in this process.
    """
    key_settings = f"{_PARTS_VERSION} {settings.split} {settings.wrapped}"
    write = partial(write_part, tokenizer=settings.split, wrapped=settings.wrapped)
    parts: list[Path] = []

    def missing_parts() -> Iterator[tuple[Chunk, Path]]:
        for chunk in chunks:
            parts.append(directory.part_path(chunk.key(key_settings)))
            if parts[-1].exists():
                progress.resume_at(chunk.bytes_read // 10**6)
            else:
                yield chunk, parts[-1]

    directory.part_path("").parent.mkdir(exist_ok=True)
    missing = missing_parts()
    first_two = [*islice(missing, 2)]
    todo = chain(first_two, missing)
    if workers == 1 or len(first_two) < 2:
        for chunk, path in todo:
            progress.update(chunk.bytes_read // 10**6, words=write(chunk, path))
    else:
        _write_in_processes(todo, write, workers=workers, progress=progress)
    return parts


def _write_in_processes(
    todo: Iterable[tuple[Chunk, Path]],
    write: Callable[[Chunk, Path], int],
    *,
    workers: int,
    progress: Progress,
) -> None:
    """Write parts in worker processes, with a few chunks waiting in memory."""
    running: dict[Future[int], int] = {}
    bytes_read = 0
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _end_with_parent)

    def wait_until(at_most: int) -> None:
        nonlocal bytes_read
        while len(running) > at_most:
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                bytes_read = max(bytes_read, running.pop(done))
                progress.update(bytes_read // 10**6, words=done.result())

    try:
        for chunk, path in todo:
            running[pool.submit(write, chunk, path)] = chunk.bytes_read
            wait_until(2 * workers)
        wait_until(0)
    except BrokenProcessPool:
        raise OutputError(
            "a worker was killed, perhaps because memory ran out; run the same command again to "
            "resume, with fewer workers. (A script that calls prepare needs "
            "`if __name__ == '__main__':` around it, or workers=1)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """In a worker: exit when the parent was killed, and leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _open_existing(folder: Path, sources: list[SourceRecord], settings: PrepareSettings) -> Corpus:
    """A corpus that was made of the same sources with the same settings."""
    record = read_record(folder / "corpus.json", CorpusRecord, "what elmo prepare wrote")
    from_stdin = any(source.name == STDIN for source in sources)
    if from_stdin or record.sources != sources or record.settings != asdict(settings):
        raise OutputError(
            f"{folder}: holds another corpus already ({record.words:,} words, of other files or "
            "settings); name another folder, or remove this one"
        )
    shutil.rmtree(folder / "parts", ignore_errors=True)  # left by a killed call
    return Corpus.open(folder)


def _as_list(names: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(names)] if isinstance(names, str | Path) else [*map(str, names)]


def _check_outside(folder: Path, names: Sequence[str]) -> None:
    """Refuse to write among the files that are read."""
    if not names:
        raise InputError("no text given; name files, folders, globs, or - for stdin")
    for name in names:
        if Path(name).is_dir() and folder.resolve().is_relative_to(Path(name).resolve()):
            raise InputError(
                f"{folder}: inside {name}, whose files are the text; name a folder elsewhere"
            )


def _read_vocabulary(path: Path) -> tuple[Vocabulary, str]:
    """The vocabulary of a file, and a digest of the file."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; name a vocabulary, one word a line")
    vocabulary = read_vocabulary(path)
    if tuple(vocabulary)[: len(SPECIAL_TOKENS)] != SPECIAL_TOKENS:
        raise FormatError(
            f"{path}: begins with {' '.join([*vocabulary][: len(SPECIAL_TOKENS)])}, expected "
            f"{' '.join(SPECIAL_TOKENS)}, a line each; put them first"
        )
    return vocabulary, hashlib.sha256(path.read_bytes()).hexdigest()
