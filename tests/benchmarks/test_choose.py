"""The comparison of pretraining settings."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from elmokit.pretraining.settings import PRESETS
from random_models import make_corpus

pytestmark = pytest.mark.full

SENTENCES = [f"the {a} cat sat on the {b} mat .".split() for a in "abc" for b in "defg"] * 3
TINY = {
    "projection_size": 8,
    "cell_size": 12,
    "filters": ((1, 6), (2, 6)),
    "max_characters": 12,
    "character_embedding_size": 4,
    "sequence_length": 5,
    "num_sampled": 6,
}


@pytest.fixture
def choose(script, monkeypatch):
    """The script, its preset and its figures small."""
    folder = str(Path(script("ngram").__file__).parent / "english")
    monkeypatch.syspath_prepend(folder)
    module = script("choose")
    monkeypatch.setitem(PRESETS, "english", replace(PRESETS["english"], **TINY))
    monkeypatch.setattr(module, "BASE", {"schedule": "linear", "batch_size": 4})
    monkeypatch.setattr("elmokit.tasks.probing._MIN_UPDATES", 5)
    return module


def test_a_recipe_is_measured_once(choose, monkeypatch, tmp_path, capsys):
    make_corpus(tmp_path / "corpus", SENTENCES, valid=SENTENCES[:3])
    (tmp_path / "pos_ud_ewt").mkdir()
    for part in ("train", "dev"):
        rest = "\t_" * 6
        rows = f"1\tthe\t_\tDET{rest}\n2\tcat\t_\tNOUN{rest}\n3\tsat\t_\tVERB{rest}\n"
        (tmp_path / "pos_ud_ewt" / f"{part}.conllu.xz").write_text(rows + "\n")
    given = ["choose.py", tmp_path / "corpus", "--out", tmp_path / "out.jsonl", "--data", tmp_path]
    monkeypatch.setitem(choose.RECIPES, "few words", {choose.VOCABULARY: 6})
    recipes = ["--minutes", "0.001", "--recipes", "base", "few words"]
    monkeypatch.setattr(sys, "argv", [*map(str, given), *recipes])
    choose.main()
    table = capsys.readouterr().out
    assert table.startswith("| recipe | core-minutes | steps | words | perplexity at 0.25 |")
    assert table.count("| 0.001 |") == 2
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["recipe"] for row in rows] == ["base", "few words"]
    assert all(row["words"] == 20 * row["steps"] >= 40 for row in rows)
    assert all(1 < score < 20 for row in rows for score in row["perplexity"])
    assert all(len(row["perplexity"]) == 3 for row in rows)
    base, few = rows
    assert few["perplexity"][-1] < base["perplexity"][-1]  # most words are <UNK>
    assert base["widest"] == pytest.approx(base["perplexity"][-1])
    assert few["widest"] > few["perplexity"][-1]
    monkeypatch.setattr(choose, "train_recipe", None)  # nothing is left to train
    choose.main()
    assert capsys.readouterr().out == table
    monkeypatch.setitem(choose.RECIPES, "few words", {choose.VOCABULARY: 7})  # another recipe now
    with pytest.raises(TypeError):  # nothing can train it
        choose.main()


def test_a_recipe_that_the_machine_cannot_run_is_reported_and_skipped(choose, monkeypatch, capsys):
    def refuse(*given):
        raise choose.ConfigError("precision is bfloat16, which this cpu does not multiply")

    monkeypatch.setattr(choose, "train_recipe", refuse)
    monkeypatch.setattr(choose, "read_conllu", lambda path: [])
    monkeypatch.setattr(choose.Corpus, "open", lambda folder: SimpleNamespace(fingerprint="made"))
    monkeypatch.setattr(sys, "argv", ["choose.py", "corpus", "--recipes", "bfloat16"])
    choose.main()
    captured = capsys.readouterr()
    assert captured.out.startswith("| recipe |")
    assert "bfloat16: precision is bfloat16, which this cpu" in captured.err


def test_the_probability_of_unknown_words_is_spread_by_frequency(choose, monkeypatch, tmp_path):
    """<UNK> of four words and a rest costs what it takes to say which is meant."""
    text = [[*"aaaabbcde"]] * 2  # a 8 times, b 4, c, d and e 2 each
    corpus = choose.Corpus.open(make_corpus(tmp_path / "corpus", text))
    assert list(corpus.lexicon[:5]) == ["<S>", "</S>", "<UNK>", "a", "b"]
    monkeypatch.setattr(
        choose, "LARGEST_VOCABULARY", 6
    )  # a, b, and the first of those that are as common
    widest = corpus.lexicon[5]
    known = replace(corpus, vocabulary=choose.Vocabulary(corpus.lexicon[:4]))  # a alone
    lacked = 4 + 2 + (4 + 1)  # b; the first; two others and any word of held-out text
    nats = [math.log(lacked / count) for count in (4, 2, 5)]
    cost = choose.cost_of_unknown(known, [["a", "b"], [widest], ["new"]])
    assert cost == pytest.approx(sum(nats) / 7)  # four words and three ends
    entire = replace(corpus, vocabulary=choose.Vocabulary(corpus.lexicon[:6]))
    assert choose.cost_of_unknown(entire, [["a", "b"], [widest], ["new"]]) == 0
