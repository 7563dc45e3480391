"""What a head reads of words is even: layers, characters, and given vectors that stay."""

import numpy as np
import torch

from elmokit.tasks.layers import FrozenLayers
from elmokit.tasks.lexicon import Lexicon
from elmokit.tasks.words import WordVectors
from toys import changed, sentence

SENTENCES = [sentence(number) for number in range(12)]
LEXICON = Lexicon.of(SENTENCES)


def test_each_number_of_a_layer_has_mean_0_and_variance_1(model):
    words = WordVectors(LEXICON, changed(elmo="input"), frozen=FrozenLayers(model))
    words.settle(model.embed(SENTENCES))
    read = words(SENTENCES)
    told = read.layers[:, read.mask]
    torch.testing.assert_close(told.mean(1), torch.zeros_like(told[:, 0]), atol=0.01, rtol=0)
    deviations = told.std(1, correction=0)
    assert deviations.max() < 1.01  # 0 where all words say the same
    assert deviations.median() > 0.95


def test_a_bilm_that_learns_reads_texts_as_a_frozen_one(model):
    texts = [("the", "cat", ".", "It", "sleeps", "."), ("no", "end")]
    for by_sentence in (True, False):
        settings = changed(elmo="input", by_sentence=by_sentence)
        frozen = FrozenLayers(model, by_sentence=by_sentence)
        found = WordVectors(LEXICON, settings, bilm=model.bilm)(texts)
        expected = WordVectors(LEXICON, settings, frozen=frozen)(texts).layers
        torch.testing.assert_close(
            found.layers[:, found.mask], expected[:, found.mask], atol=2e-3, rtol=1e-3
        )


def test_a_number_that_never_changes_stays_quiet(model):
    words = WordVectors(LEXICON, changed(elmo="input"), frozen=FrozenLayers(model))
    same = [np.repeat(layers[:, :1], 3, 1) for layers in model.embed(SENTENCES[:1])]
    words.settle(same)
    assert words.deviation.isfinite().all()
    assert (words.deviation > 0).all()


def test_what_characters_say_gets_mean_0_and_variance_1():
    torch.manual_seed(0)
    words = WordVectors(LEXICON, changed(elmo="none", word_dim=0, dropout=0.0, characters=8))
    for _ in range(3):
        words(SENTENCES)
    words.eval()
    spelled = words([LEXICON.words]).vectors[0]
    assert spelled.mean(0).abs().max() < 0.5
    assert 0.5 < spelled.std(0).median() < 1.5
    kept = words.usual
    words(SENTENCES)
    assert words.usual is kept  # only learning changes it


def test_given_vectors_stay_and_others_learn():
    torch.manual_seed(0)
    words = WordVectors(LEXICON, changed(elmo="none", vectors="x", freeze_vectors=True))
    words.begin_with(["cat"], torch.ones(1, 8))
    before = words.table.weight.detach().clone()
    words(SENTENCES).vectors.sum().backward()
    row = int(LEXICON.rows([["cat"]])[0, 0])
    learning = words.table.weight.grad.abs().sum(1) > 0
    assert not learning[row]
    assert learning.sum() > 5
    assert torch.equal(before[row], torch.ones(8))
