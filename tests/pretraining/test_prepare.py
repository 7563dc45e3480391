"""Corpus preparation: contents, bad lines, refusals, and resuming after a kill."""

import filecmp
import gzip
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from elmokit import prepare
from elmokit.atomic import DirectoryLock, ResumableDirectory
from elmokit.errors import ElmokitError, FormatError, InputError, OutputError
from elmokit.pretraining import text_chunks
from elmokit.pretraining.prepare import PrepareSettings, write_parts
from elmokit.pretraining.text_chunks import Chunk, LineRange
from elmokit.progress import Progress
from elmokit.tokenizers import get_tokenizer

PARAGRAPH = 'The cat sat. It didn\'t eat "the fish", Mr. Smith said.'


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def sentences_of(corpus):
    """All sentences of the shards, as words."""
    ids = np.concatenate([np.load(shard, mmap_mode="r") for shard in corpus.shards])
    sentences, words = [], []
    for word_id in ids:
        if word_id == 1:
            sentences.append(words)
            words = []
        else:
            words.append(corpus.lexicon[word_id])
    assert not words, "the last sentence has no end"
    return sentences


def prepared(folder, text, **settings):
    """A corpus of one text, in this process."""
    folder.mkdir()
    settings = {"min_count": 1, "workers": 1, "valid": [], **settings}
    return prepare([write(folder / "text", text)], folder / "corpus", **settings)


def test_shards_have_the_sentences_and_the_lexicon_their_words(tmp_path):
    corpus = prepared(tmp_path / "a", f"{PARAGRAPH}\n\n{PARAGRAPH}\r\nNo end")
    moses = get_tokenizer("moses")
    first = [moses.tokenize(sentence) for sentence in moses.split_sentences(PARAGRAPH)]
    assert len(first) == 2
    assert sentences_of(corpus) == [*first, *first, ["No", "end"]]
    assert corpus.sentences == 5
    assert corpus.words == sum(map(len, sentences_of(corpus)))
    assert corpus.lexicon[:3] == ["<S>", "</S>", "<UNK>"]
    ids = np.concatenate([np.load(shard) for shard in corpus.shards])
    assert ids.dtype == np.int32
    assert np.array_equal(corpus.counts, np.bincount(ids, minlength=len(corpus.lexicon)))
    assert corpus.counts.dtype == np.int64


def test_the_lexicon_is_sorted_by_frequency_then_by_bytes(tmp_path):
    corpus = prepared(tmp_path / "a", "b a b ä 😀 z\nﬁ z b\n", tokenizer="spaces", min_count=2)
    assert corpus.lexicon[3:] == ["b", "z", "a", "ä", "ﬁ", "😀"]
    assert [*corpus.vocabulary] == ["<S>", "</S>", "<UNK>", "b", "z"]
    assert corpus.counts.tolist() == [0, 2, 0, 3, 2, 1, 1, 1, 1]
    few = prepared(tmp_path / "b", "b a b ä 😀 z\nﬁ z b\n", tokenizer="spaces", max_words=4)
    assert [*few.vocabulary] == ["<S>", "</S>", "<UNK>", "b"]
    assert few.lexicon == corpus.lexicon


def test_a_given_vocabulary_keeps_its_lines(tmp_path):
    words = write(tmp_path / "words", "<S>\n</S>\n<UNK>\nzebra\nb\n")
    settings = {"tokenizer": "spaces", "vocabulary": words, "min_count": None}
    corpus = prepared(tmp_path / "a", "a b c c\n", **settings)
    assert corpus.lexicon == ["<S>", "</S>", "<UNK>", "zebra", "b", "c", "a"]
    assert len(corpus.vocabulary) == 5
    assert corpus.counts.tolist() == [0, 1, 0, 0, 1, 2, 1]
    with pytest.raises(InputError, match="min_count and max_words cannot change it"):
        prepared(tmp_path / "b", "a\n", **{**settings, "max_words": 9})
    write(words, "<S>\n</S>\n<UNK>\nb\nzebra\n")
    with pytest.raises(OutputError, match="holds another corpus already"):
        prepare([tmp_path / "a" / "text"], corpus.folder, valid=[], workers=1, **settings)
    write(words, "the\n<S>\n")
    with pytest.raises(FormatError, match="begins with the <S>, expected <S> </S> <UNK>"):
        prepared(tmp_path / "c", "a\n", **settings)


def test_a_special_token_in_the_text_is_an_unknown_word(tmp_path):
    corpus = prepared(tmp_path / "a", "a <S> b </S>\n<UNK> !!!MAXTERMID\n", tokenizer="spaces")
    assert sentences_of(corpus) == [["a", "<UNK>", "b", "<UNK>"], ["<UNK>", "<UNK>"]]
    assert corpus.counts[2] == 4
    record = json.loads((corpus.folder / "corpus.json").read_text())
    assert record["report"]["replaced"] == 3


def test_wrapped_lines_are_sentences_across_line_ends(tmp_path):
    corpus = prepared(tmp_path / "a", "The cat\nsat. It\nslept\n \nA dog\n", wrapped=True)
    assert [" ".join(words) for words in sentences_of(corpus)] == [
        "The cat sat .", "It slept", "A dog",
    ]  # fmt: skip
    with pytest.raises(InputError, match="takes each line for a sentence"):
        prepared(tmp_path / "b", "a\n", wrapped=True, tokenizer="spaces")


def test_every_500th_line_is_held_out_and_stays_out_of_the_shards(tmp_path):
    lines = [f"w{number}" for number in range(1, 1800)]
    text = "\n\n".join(lines)  # blank lines are not counted
    corpus = prepared(tmp_path / "a", text, tokenizer="spaces", valid=None)
    assert corpus.valid == [["w500"], ["w1000"], ["w1500"]]
    assert [words[0] for words in sentences_of(corpus)] == [
        line for line in lines if [line] not in corpus.valid
    ]
    assert prepared(tmp_path / "b", text, tokenizer="spaces").valid == []


def test_holding_out_stops_at_enough_words(tmp_path, monkeypatch):
    monkeypatch.setattr(text_chunks, "HELD_OUT_WORDS", 5)
    corpus = prepared(tmp_path / "a", "a b c\n" * 4000, tokenizer="spaces", valid=None)
    assert len(corpus.valid) == 2


def test_given_held_out_text_is_tokenized_as_the_corpus_is(tmp_path):
    valid = write(tmp_path / "valid.gz", gzip.compress(b"It didn't rain. He left.\n"))
    corpus = prepared(tmp_path / "a", "A cat.\n", valid=[valid])
    assert corpus.valid[0] == ["It", "didn", "'t", "rain", "."]
    assert corpus.sentences == 1
    assert "didn" not in corpus.lexicon


TEXT_WITH_BAD_LINES = b"\n".join(
    [
        b"good line",
        b"bad \xff byte",
        b"nul \0 here",
        b"x" * 10_001,
        b"y " * 600_000,
        b"\xff" * 5_000_000,  # more than is ever read of one line
        b"last",
    ]
)


def test_bad_lines_are_listed_with_file_and_line(tmp_path, caplog):
    text, empty = write(tmp_path / "text", TEXT_WITH_BAD_LINES), write(tmp_path / "empty", "\n \n")
    with pytest.raises(InputError, match=r"^6 of .*1 not UTF-8.*--skip-bad"):
        prepare([text, empty], tmp_path / "out", tokenizer="spaces", workers=1)
    rows = (tmp_path / "out/bad_lines.tsv").read_text().splitlines()
    assert rows[1:] == [
        f"{text}\t2\tbytes\tbyte 0xff at column 5",
        f"{text}\t3\tnul\tat column 5",
        f"{text}\t4\tspaceless\t10,001 characters",
        f"{text}\t5\tlong\t",
        f"{text}\t6\tlong\t",
        f"{empty}\t0\tempty\t",
    ]
    assert f"{text}, line 2: not UTF-8 (byte 0xff at column 5)" in caplog.text
    assert f"{empty}: without text" in caplog.text
    assert not (tmp_path / "out/corpus.json").exists()

    corpus = prepare([text, empty], tmp_path / "out", tokenizer="spaces", workers=1, skip_bad=True)
    assert sentences_of(corpus) == [["good", "line"], ["last"]]
    record = json.loads((tmp_path / "out/corpus.json").read_text())
    assert record["report"] == {
        "bytes": 1, "nul": 1, "long": 2, "spaceless": 1, "empty": 1, "replaced": 0,
    }  # fmt: skip


@pytest.mark.parametrize("line", ["A line of text.", "😀"])  # one, and four bytes a character
def test_a_wrapped_text_without_blank_lines_is_bad(tmp_path, line):
    with pytest.raises(InputError, match=r"^1 of"):
        prepared(tmp_path / "a", f"{line}\n" * 850_000 + "\nThe end.\n", wrapped=True)
    rows = (tmp_path / "a/corpus/bad_lines.tsv").read_text().splitlines()
    assert "\t1\tlong\t" in rows[1]


def test_a_text_without_words_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no sentence"):
        prepared(tmp_path / "a", "\u00a0\n")


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_corpus_does_not_depend_on_the_chunks(tmp_path, monkeypatch, wrapped):
    text = "".join(f"{PARAGRAPH}\nNumber {n} is here.\n{chr(10) * (n % 3)}" for n in range(900))
    at_once = prepared(tmp_path / "a", text, wrapped=wrapped, valid=None)
    monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 3000)
    in_chunks = prepared(tmp_path / "b", text, wrapped=wrapped, valid=None)
    assert in_chunks.fingerprint == at_once.fingerprint
    assert in_chunks.valid
    assert in_chunks.valid == at_once.valid


def test_shards_end_where_a_sentence_does(tmp_path, monkeypatch):
    monkeypatch.setattr("elmokit.pretraining.shard_writer.SHARD_TOKENS", 100)
    corpus = prepared(tmp_path / "a", "a b c d e f g\n" * 100 + "h " * 300, tokenizer="spaces")
    assert len(corpus.shards) == 8
    assert all(np.load(shard)[-1] == 1 for shard in corpus.shards)
    assert len(sentences_of(corpus)) == 101


def test_a_corpus_inside_its_own_text_is_refused(tmp_path):
    text = write(tmp_path / "text", "a\n")
    with pytest.raises(InputError, match="named twice"):
        prepare([text], tmp_path / "out", valid=[text])
    with pytest.raises(InputError, match=r"inside .*, whose files are the text"):
        prepare(tmp_path, tmp_path / "out")
    with pytest.raises(InputError, match="no text given"):
        prepare([], tmp_path / "out")


def test_an_existing_corpus_is_opened_and_another_is_refused(tmp_path):
    corpus = prepared(tmp_path / "a", "a b\n")
    text = tmp_path / "a/text"
    before = (corpus.folder / "corpus.json").stat().st_mtime_ns
    again = prepare([text], corpus.folder, min_count=1, workers=1, valid=[])
    assert again.fingerprint == corpus.fingerprint
    assert (corpus.folder / "corpus.json").stat().st_mtime_ns == before
    with pytest.raises(OutputError, match="holds another corpus already"):
        prepare([text], corpus.folder, min_count=2, workers=1, valid=[])
    write(text, "c d e\n")
    with pytest.raises(OutputError, match="holds another corpus already"):
        prepare([text], corpus.folder, min_count=1, workers=1, valid=[])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokenizer": "moses-xxxx"}, "no tokenizer is called"),
        ({"min_count": 0}, "min_count is 0"),
        ({"max_words": 3}, "max_words is 3"),
        ({"workers": 0}, "workers is 0"),
    ],
)
def test_impossible_settings_are_refused_at_once(tmp_path, settings, message):
    with pytest.raises(ElmokitError, match=message):
        prepared(tmp_path / "a", "a\n", **settings)
    assert not (tmp_path / "a/corpus").exists()


@pytest.mark.parametrize(("is_reversed", "warnings"), [(False, 0), (True, 1)])
def test_a_vocabulary_that_is_not_sorted_by_frequency_is_warned_about(
    tmp_path, caplog, is_reversed, warnings
):
    words = [f"word{k:02}" for k in range(40)]
    text = "".join(f"{word} " * (400 // (k + 1)) + "\n" for k, word in enumerate(words))
    listed = ["<S>", "</S>", "<UNK>", *sorted(words, reverse=is_reversed)]
    write(tmp_path / "vocabulary", "".join(f"{word}\n" for word in listed))
    prepared(tmp_path / "a", text, min_count=None, vocabulary=tmp_path / "vocabulary")
    assert caplog.text.count("most frequent words are not first") == warnings


RUN = """
import sys

if __name__ == "__main__":
    from elmokit.pretraining import prepare, text_chunks

    text_chunks.CHUNK_BYTES = 2**14
    prepare.prepare([sys.argv[1]], sys.argv[2], workers=2)
"""


@pytest.mark.full
def test_a_killed_call_is_resumed_with_the_same_files(tmp_path, monkeypatch):
    text, killed, uninterrupted = (tmp_path / name for name in ("text", "killed", "other"))
    lines = (f"{PARAGRAPH} Item{n % 997} isn't number {n}.\n" for n in range(6000))
    write(text, "".join(lines))
    run = [sys.executable, write(tmp_path / "run.py", RUN), text, killed]
    process = subprocess.Popen(run, start_new_session=True)
    while len([*killed.glob("parts/[0-9]*.npz")]) < 3:
        assert process.poll() is None, "ended before it could be killed"
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for_end_of(process.pid)
    assert not (killed / "corpus.json").exists()

    modified_at = {path: path.stat().st_mtime_ns for path in killed.glob("parts/[0-9]*.npz")}
    monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 2**14)
    monkeypatch.setattr(ResumableDirectory, "clear", ResumableDirectory.close)  # parts stay
    for folder in (killed, uninterrupted):
        prepare([text], folder, workers=1)
    assert all(path.stat().st_mtime_ns == modified for path, modified in modified_at.items())
    assert len(modified_at) < len([*uninterrupted.glob("parts/*")])
    names = sorted(path.name for path in uninterrupted.iterdir() if path.is_file())
    assert len(names) == 6
    assert filecmp.cmpfiles(killed, uninterrupted, names, shallow=False)[0] == names


def test_a_killed_worker_is_an_error_that_says_how_to_resume(tmp_path):
    chunks = [Chunk(n, [LineRange("text", n + 1, bytearray(b"a\n"), False)], [], 0) for n in (0, 1)]
    settings = PrepareSettings(
        split=Killing("spaces"), wrapped=False, hold_out=False, min_count=None, max_words=None,
        vocabulary=None, skip_bad=False,
    )  # fmt: skip
    with (
        ResumableDirectory(tmp_path, {}, manifest_name=None, part_name="parts/{}") as directory,
        pytest.raises(OutputError, match="a worker was killed"),
    ):
        write_parts(chunks, directory, settings, workers=2, progress=Progress(None))


class Killing(str):
    """A name that kills the process that unpacks it."""

    def __reduce__(self):
        return os._exit, (9,)


def wait_for_end_of(group):
    """Wait until no worker of a killed run is left; they share its process group."""
    for _ in range(500):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    pytest.fail("a killed run left workers behind")


def test_a_folder_that_another_process_prepares_is_refused(tmp_path):
    text = write(tmp_path / "text", "a\n")
    (tmp_path / "a").mkdir()
    with (
        DirectoryLock(tmp_path / "a", "busy"),
        pytest.raises(InputError, match="another process is"),
    ):
        prepare([text], tmp_path / "a", workers=1)


def test_worker_processes_do_not_import_torch():
    code = "import sys, elmokit.pretraining.prepare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
