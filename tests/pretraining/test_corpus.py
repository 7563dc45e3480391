import json

import numpy as np
import pytest

from elmokit import Corpus, prepare
from elmokit.errors import FormatError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text").write_text("a b c\na b\na\n")
    prepare([tmp_path / "text"], tmp_path / "corpus", tokenizer="spaces", min_count=2, workers=1)
    return tmp_path / "corpus"


def test_a_corpus_has_what_was_prepared(folder):
    corpus = Corpus.open(folder)
    assert (corpus.tokenizer, corpus.sentences, corpus.words) == ("spaces", 3, 6)
    assert [*corpus.vocabulary] == ["<S>", "</S>", "<UNK>", "a", "b"]
    assert corpus.lexicon == [*corpus.vocabulary, "c"]
    assert corpus.shards == (folder / "00000.npy",)
    assert np.load(corpus.shards[0], mmap_mode="r").tolist() == [3, 4, 5, 1, 3, 4, 1, 3, 1]
    assert corpus.valid == []
    assert len(corpus.fingerprint) == 64
    assert not (folder / "parts").exists()


def test_corpus_json_describes_the_corpus(folder):
    record = json.loads((folder / "corpus.json").read_text())
    assert record["format"] == "elmokit-corpus"
    assert record["version"] == 1
    assert (record["types"], record["vocabulary"]) == (6, 5)
    assert record["shards"] == [{"name": "00000.npy", "sentences": 3, "words": 6}]
    assert record["sources"][0]["bytes"] == 12


def cut_shard(folder):
    (folder / "00000.npy").write_bytes((folder / "00000.npy").read_bytes()[:-8])


def shorten_shard(folder):
    np.save(folder / "00000.npy", np.zeros(3, np.int32))


def remove_shard(folder):
    (folder / "00000.npy").unlink()


def cut_vocabulary(folder):
    (folder / "vocabulary.txt").write_text("<S>\n</S>\n")


def cut_lexicon(folder):
    (folder / "lexicon.txt").write_text("<S>\n</S>\n")


def spoil_lexicon(folder):
    (folder / "lexicon.txt").write_bytes(b"\xff\n")


def change_version(folder):
    path = folder / "corpus.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))


def cut_record(folder):
    (folder / "corpus.json").write_text("{")


def remove_record(folder):
    (folder / "corpus.json").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_shard, "00000.npy: cannot be read"),
        (shorten_shard, r"int32 of shape \(3,\), expected int32 of shape \(9,\)"),
        (remove_shard, "00000.npy: cannot be read"),
        (cut_vocabulary, "2 lines, beginning with <S> </S>; expected 5"),
        (cut_lexicon, "lexicon.txt: 2 lines, expected 6"),
        (spoil_lexicon, "lexicon.txt: not UTF-8 .*; prepare the text again"),
        (change_version, "version 2, expected 'elmokit-corpus', version 1"),
        (cut_record, "corpus.json: .*expected what elmo prepare wrote"),
        (remove_record, "no corpus.json there; make one with elmo prepare"),
    ],
)
def test_a_damaged_corpus_is_refused_in_a_sentence(folder, damage, message):
    damage(folder)
    with pytest.raises(FormatError, match=message):
        _ = Corpus.open(folder).lexicon


def test_damaged_counts_are_refused_in_a_sentence(folder):
    content = (folder / "counts.npy").read_bytes()
    (folder / "counts.npy").write_bytes(content[:-8])
    with pytest.raises(FormatError, match=r"counts\.npy: not an array"):
        _ = Corpus.open(folder).counts
    np.save(folder / "counts.npy", np.ones(2))
    with pytest.raises(FormatError, match=r"float64 of shape \(2,\), expected int64 of shape \(6,"):
        _ = Corpus.open(folder).counts
