"""Frozen layers are those of the biLM, kept or worked out anew."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit.errors import OutputError
from elmokit.tasks.feed import Feed, cut_text, spell_as_moses
from elmokit.tasks.layers import FrozenLayers

SENTENCES = [("a", "b", "c"), ("d",), ("a", "b", "c"), ("e", "f")]


def test_layers_are_those_of_the_bilm_added_or_not(model):
    frozen = FrozenLayers(model)
    frozen.add(SENTENCES[:2])
    found = frozen(SENTENCES)
    assert found.shape == (3, 4, 3, model.dim)
    for place, expected in enumerate(model.embed(SENTENCES)):
        words = expected.shape[1]
        np.testing.assert_array_equal(found[:, place, :words], expected.astype(np.float16))
        assert not found[:, place, words:].any()
    assert torch.equal(found, FrozenLayers(model)(SENTENCES))


def test_layers_may_be_chosen(model):
    chosen, whole = FrozenLayers(model, (2, 0)), FrozenLayers(model)
    assert torch.equal(chosen(SENTENCES), whole(SENTENCES)[[2, 0]])


def test_what_was_added_is_not_worked_out_again(model, monkeypatch):
    frozen = FrozenLayers(model)
    frozen.add(SENTENCES)
    asked = []
    embed = model.embed
    monkeypatch.setattr(model, "embed", lambda s, **ways: asked.append(s) or embed(s, **ways))
    frozen(SENTENCES[:2])
    assert asked == [[]]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_told_with_what_is_needed(model, monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: open("/dev/full", "wb"))
    needed = 4 * 3 * model.dim * 2
    with pytest.raises(OutputError, match=rf"take {needed} bytes there \(No space.*TMPDIR"):
        FrozenLayers(model).add(SENTENCES[:2])


TEXT = ("He", "left", ".", '"', "Why", "?", "!", '"', "No", "one", "( yes )", "knew", ".")


def test_a_text_is_cut_where_its_sentences_end():
    assert cut_text(TEXT) == [TEXT[:3], TEXT[3:8], TEXT[8:]]
    assert cut_text((".",)) == [(".",)]
    assert cut_text(("no", "end")) == [("no", "end")]
    assert cut_text(("he", "said", ".", '"')) == [("he", "said", ".", '"')]
    assert cut_text((".", '"', "A", ".", '"')) == [(".",), ('"', "A", ".", '"')]
    said = ("He", "said", '"', "I", "know", ".", "I", "do", ".", '"', "Then", "he", "left", ".")
    assert cut_text(said) == [said[:6], said[6:10], said[10:]]
    chinese = tuple("很好。「不好！」真的？是")
    assert [*map("".join, cut_text(chinese))] == ["很好。", "「不好！」", "真的？", "是"]
    assert Feed(by_sentence=False, split="spaces")(TEXT) == [TEXT]


TREEBANK = (
    "Wo",
    "n't",
    "she",
    "?",
    "``",
    "I",
    "do",
    "n’t",
    "--",
    "it",
    "’s",
    "-LRB-",
    "1–2",
    "—",
    "…",
)
MOSES = ("Won", "'t", "she", "?", '"', "I", "don", "'t", "-", "it", "'s", "(", "1-2", "-", "...")


def test_words_are_spelled_as_moses_writes_them_where_a_bilm_read_them_so():
    assert spell_as_moses(TREEBANK) == MOSES
    assert spell_as_moses(("n't",)) == ("n't",)
    assert spell_as_moses(("DO", "N'T")) == ("DON", "'T")
    assert Feed(by_sentence=True, split="moses")(TREEBANK) == [MOSES[:4], MOSES[4:]]
    assert Feed(by_sentence=True, split="spaces")(TREEBANK) == [TREEBANK[:4], TREEBANK[4:]]


def test_a_text_has_the_layers_of_its_sentences_one_after_another(model):
    expected = np.concatenate(model.embed(cut_text(TEXT)), 1).astype(np.float16)
    for added in ([], [TEXT]):
        frozen = FrozenLayers(model)
        frozen.add(added)
        found = frozen([TEXT, ("e", "f")])
        np.testing.assert_array_equal(found[:, 0], expected)
    whole = FrozenLayers(model, by_sentence=False)([TEXT])
    np.testing.assert_array_equal(whole[:, 0], model.embed([TEXT])[0].astype(np.float16))
