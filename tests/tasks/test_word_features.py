"""What a head reads of words is even: layers, characters, and given vectors that stay."""

import numpy as np
import torch

from elmokit.tasks.cached_layers import CachedLayers
from elmokit.tasks.vocab import WordVocabulary
from elmokit.tasks.word_features import WordFeatures
from elmokit.vocab import CharacterIndexer
from task_examples import changed, sentence

SENTENCES = [sentence(number) for number in range(12)]
VOCABULARY = WordVocabulary.from_sentences(SENTENCES)


def test_each_number_of_a_layer_has_mean_0_and_variance_1(model):
    words = WordFeatures(VOCABULARY, changed(elmo="input"), frozen=CachedLayers(model))
    words.fit_normalizer(model.embed(SENTENCES))
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
        frozen = CachedLayers(model, by_sentence=by_sentence)
        found = WordFeatures(VOCABULARY, settings, bilm=model.bilm, preprocess=frozen.preprocess)(
            texts
        )
        expected = WordFeatures(VOCABULARY, settings, frozen=frozen)(texts).layers
        torch.testing.assert_close(
            found.layers[:, found.mask], expected[:, found.mask], atol=2e-3, rtol=1e-3
        )


def test_a_number_that_never_changes_stays_quiet(model):
    words = WordFeatures(VOCABULARY, changed(elmo="input"), frozen=CachedLayers(model))
    same = [np.repeat(layers[:, :1], 3, 1) for layers in model.embed(SENTENCES[:1])]
    words.fit_normalizer(same)
    assert words.layer_std.isfinite().all()
    assert (words.layer_std > 0).all()


def test_what_characters_say_gets_mean_0_and_variance_1():
    torch.manual_seed(0)
    words = WordFeatures(
        VOCABULARY, changed(elmo="none", word_embedding_size=0, dropout=0.0, character_filters=8)
    )
    for _ in range(3):
        words(SENTENCES)
    words.eval()
    spelled = words([VOCABULARY.words]).vectors[0]
    assert spelled.mean(0).abs().max() < 0.5
    assert 0.5 < spelled.std(0).median() < 1.5
    kept = words.char_mean
    words(SENTENCES)
    assert words.char_mean is kept  # only learning changes it


def test_given_vectors_stay_and_others_learn():
    torch.manual_seed(0)
    words = WordFeatures(
        VOCABULARY, changed(elmo="none", word_vectors="x", freeze_word_vectors=True)
    )
    words.init_embeddings(["cat"], torch.ones(1, 8))
    before = words.word_embedding.weight.detach().clone()
    words(SENTENCES).vectors.sum().backward()
    row = int(VOCABULARY.rows([["cat"]])[0, 0])
    learning = words.word_embedding.weight.grad.abs().sum(1) > 0
    assert not learning[row]
    assert learning.sum() > 5
    assert torch.equal(before[row], torch.ones(8))


def test_only_words_of_the_training_text_learn():
    torch.manual_seed(0)
    given = ["once", "Elsewhere", "twice"]
    vocabulary = WordVocabulary.from_sentences(
        [["twice", "twice", "once", "rare"]], pretrained=given
    )
    assert (vocabulary.words, vocabulary.num_trained) == (["twice", "once", "elsewhere"], 4)
    settings = changed(elmo="none", character_filters=0, dropout=0.0, word_vectors="x")
    words = WordFeatures(vocabulary, settings)
    words.init_embeddings(given, torch.arange(3.0)[:, None].expand(3, 8))
    read = words.eval()([["twice", "elsewhere", "once"]]).vectors
    assert read[0, :, 0].tolist() == [2, 1, 0]
    read.sum().backward()
    assert words.word_embedding.weight.grad[:, 0].tolist() == [0, 0, 1, 1]


def test_words_compared_are_as_alike_in_learning_as_in_use(model):
    """On average: those of two sentences, which miss other numbers, and two of one sentence."""
    torch.manual_seed(0)
    settings = changed(elmo="output", elmo_dropout=0.5)
    words = WordFeatures(VOCABULARY, settings, frozen=CachedLayers(model))
    one, other = words(SENTENCES[:1]), words(SENTENCES[1:2])
    said = torch.randn(2, 1, one.mask.shape[1], 30)

    def alike():
        (first, whole), (second, _) = (
            words.normalized_output(own, read, 0.4)
            for own, read in zip(said, (one, other), strict=True)
        )
        return [(first * second).sum().item(), (first * whole).sum().item()]

    learning = np.mean([alike() for _ in range(4000)], 0)
    words.eval()
    assert min(map(abs, alike())) > 20
    np.testing.assert_allclose(learning, alike(), rtol=0.1)


def test_numbers_go_missing_in_learning_as_many_as_settings_say(model):
    settings = changed(elmo="both", dropout=0.25, elmo_dropout=0.75)
    words = WordFeatures(VOCABULARY, settings, frozen=CachedLayers(model))
    words.fit_normalizer(model.embed(SENTENCES))

    def missing():
        read = words(SENTENCES)
        told = words.add_to_output(read.vectors[..., :0], read)
        parts = (*read.vectors[read.mask].split([8, 12, words.elmo_dim], -1), told[read.mask])
        return [(part == 0).float().mean().item() for part in parts]

    torch.manual_seed(0)
    learning = np.mean([missing() for _ in range(50)], 0)
    np.testing.assert_allclose(learning, [0.25, 0.25, 0.75, 0.75], atol=0.05)
    words.eval()
    assert max(missing()) < 0.05


def test_rare_words_are_often_read_as_unknown_in_learning():
    vocabulary = WordVocabulary.from_sentences([["rare", "rare"], ["common"] * 998, ["once"]])
    words = WordFeatures(vocabulary, changed(elmo="none", character_filters=0, dropout=0.0))
    unknown = words.eval()([["once"]]).vectors[0, 0]
    words.train()
    read = words([["rare"] * 500, ["common"] * 500]).vectors
    forgotten = (read == unknown).all(2).sum(1)
    assert 25 < forgotten[0] < 90  # 0.25 of 2.25
    assert forgotten[1] < 5
    again = WordFeatures(
        WordVocabulary(vocabulary.words), changed(elmo="none")
    )  # as one that is loaded
    assert not again._unknown_probability.any()


def test_a_word_has_one_row_however_it_is_written():
    vocabulary = WordVocabulary.from_sentences([["“", "Don’t", '"', "don't"]])
    assert vocabulary.words == ['"', "don't"]
    assert vocabulary.rows([["”", "DON'T"]]).tolist() == [[2, 3]]


def test_only_words_that_are_read_tell_what_characters_usually_say():
    words = WordFeatures(VOCABULARY, changed(elmo="none"))
    words.train()
    words([("cat",)])
    once = words.char_mean.clone()
    words([("<S>",)])
    assert torch.equal(words.char_mean, once)
    rows, _ = CharacterIndexer(words.char_encoder.config.max_characters).encode(["cat"])
    torch.testing.assert_close(once, words.char_encoder(torch.from_numpy(rows))[0].detach())
