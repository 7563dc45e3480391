"""Cached layers are those of the biLM."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit.errors import OutputError
from elmokit.tasks.cached_layers import CachedLayers, Preprocessor, split_into_sentences
from elmokit.tokenizers import respell

SENTENCES = [("a", "b", "c"), ("d",), ("a", "b", "c"), ("e", "f")]


def test_layers_are_those_of_the_bilm_added_or_not(model):
    frozen = CachedLayers(model)
    frozen.add(SENTENCES[:2])
    layers = frozen(SENTENCES)
    assert layers.shape == (3, 4, 3, model.dim)
    for index, expected in enumerate(model.embed(SENTENCES)):
        words = expected.shape[1]
        np.testing.assert_array_equal(layers[:, index, :words], expected.astype(np.float16))
        assert not layers[:, index, words:].any()
    assert torch.equal(layers, CachedLayers(model)(SENTENCES))


def test_layers_can_be_chosen(model):
    chosen, every = CachedLayers(model, (2, 0)), CachedLayers(model)
    assert torch.equal(chosen(SENTENCES), every(SENTENCES)[[2, 0]])


def test_cached_layers_are_not_computed_again(model, monkeypatch):
    frozen = CachedLayers(model)
    frozen.add(SENTENCES)
    embedded = []
    embed = model.embed
    monkeypatch.setattr(
        model, "embed", lambda s, **options: embedded.append(s) or embed(s, **options)
    )
    frozen(SENTENCES[:2])
    assert embedded == [[]]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_reported_with_the_bytes_needed(model, monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: open("/dev/full", "wb"))
    needed = 4 * 3 * model.dim * 2
    with pytest.raises(OutputError, match=rf"need {needed} bytes there \(No space.*TMPDIR"):
        CachedLayers(model).add(SENTENCES[:2])


TEXT = ("He", "left", ".", '"', "Why", "?", "!", '"', "No", "one", "( yes )", "knew", ".")


def test_a_text_is_split_into_sentences():
    assert split_into_sentences(TEXT) == [TEXT[:3], TEXT[3:8], TEXT[8:]]
    assert split_into_sentences((".",)) == [(".",)]
    assert split_into_sentences(("no", "end")) == [("no", "end")]
    assert split_into_sentences(("he", "said", ".", '"')) == [("he", "said", ".", '"')]
    assert split_into_sentences((".", '"', "A", ".", '"')) == [(".",), ('"', "A", ".", '"')]
    quoted = ("He", "said", '"', "I", "know", ".", "I", "do", ".", '"', "Then", "he", "left", ".")
    assert split_into_sentences(quoted) == [quoted[:6], quoted[6:10], quoted[10:]]
    chinese = tuple("很好。「不好！」真的？是")
    assert [*map("".join, split_into_sentences(chinese))] == [
        "很好。",
        "「不好！」",
        "真的？",
        "是",
    ]
    assert Preprocessor(by_sentence=False, tokenizer="spaces")(TEXT) == [TEXT]


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


def test_words_are_spelled_as_moses_for_a_bilm_trained_so():
    assert respell(TREEBANK, "moses-de") == MOSES
    assert respell(("n't",), "moses") == ("n't",)
    assert respell(("DO", "N'T"), "moses") == ("DON", "'T")
    assert Preprocessor(by_sentence=True, tokenizer="moses")(TREEBANK) == [MOSES[:4], MOSES[4:]]
    assert Preprocessor(by_sentence=True, tokenizer="spaces")(TREEBANK) == [
        TREEBANK[:4],
        TREEBANK[4:],
    ]


def test_a_text_has_the_layers_of_its_sentences(model):
    expected = np.concatenate(model.embed(split_into_sentences(TEXT)), 1).astype(np.float16)
    for added in ([], [TEXT]):
        frozen = CachedLayers(model)
        frozen.add(added)
        layers = frozen([TEXT, ("e", "f")])
        np.testing.assert_array_equal(layers[:, 0], expected)
    layers = CachedLayers(model, by_sentence=False)([TEXT])
    np.testing.assert_array_equal(layers[:, 0], model.embed([TEXT])[0].astype(np.float16))
