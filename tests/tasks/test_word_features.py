"""Word features: normalized layers, characters, pretrained vectors, and their dropout."""

import numpy as np
import torch

from elmokit.character_ids import CharacterIndexer
from elmokit.tasks.cached_layers import CachedLayers
from elmokit.tasks.word_features import WordFeatures, WordVocabulary
from task_examples import sentence, tiny_settings

SENTENCES = [sentence(number) for number in range(12)]
VOCABULARY = WordVocabulary.from_sentences(SENTENCES)


def test_layers_are_normalized(model):
    words = WordFeatures(VOCABULARY, tiny_settings(elmo="input"), frozen=CachedLayers(model))
    words.fit_normalizer(model.embed(SENTENCES))
    features = words(SENTENCES)
    layers = features.layers[:, features.mask]
    torch.testing.assert_close(layers.mean(1), torch.zeros_like(layers[:, 0]), atol=0.01, rtol=0)
    deviations = layers.std(1, correction=0)
    assert deviations.max() < 1.01  # 0 where all words have the same value
    assert deviations.median() > 0.95


def test_a_finetuned_bilm_gives_the_layers_of_a_frozen_one(model):
    texts = [("the", "cat", ".", "It", "sleeps", "."), ("no", "end")]
    for by_sentence in (True, False):
        settings = tiny_settings(elmo="input", by_sentence=by_sentence)
        frozen = CachedLayers(model, by_sentence=by_sentence)
        finetuned = WordFeatures(
            VOCABULARY, settings, bilm=model.bilm, preprocess=frozen.preprocess
        )(texts)
        expected = WordFeatures(VOCABULARY, settings, frozen=frozen)(texts).layers
        torch.testing.assert_close(
            finetuned.layers[:, finetuned.mask], expected[:, finetuned.mask], atol=2e-3, rtol=1e-3
        )


def test_a_constant_dimension_is_normalized(model):
    words = WordFeatures(VOCABULARY, tiny_settings(elmo="input"), frozen=CachedLayers(model))
    same = [np.repeat(layers[:, :1], 3, 1) for layers in model.embed(SENTENCES[:1])]
    words.fit_normalizer(same)
    assert words.layer_std.isfinite().all()
    assert (words.layer_std > 0).all()


def test_character_features_are_normalized():
    torch.manual_seed(0)
    words = WordFeatures(
        VOCABULARY,
        tiny_settings(elmo="none", word_embedding_size=0, dropout=0.0, character_filters=8),
    )
    for _ in range(3):
        words(SENTENCES)
    words.eval()
    spelled = words([VOCABULARY.words]).vectors[0]
    assert spelled.mean(0).abs().max() < 0.5
    assert 0.5 < spelled.std(0).median() < 1.5
    mean = words.char_mean
    words(SENTENCES)
    assert words.char_mean is mean  # only training changes it


def test_frozen_word_vectors_stay_and_others_are_trained():
    torch.manual_seed(0)
    words = WordFeatures(
        VOCABULARY, tiny_settings(elmo="none", word_vectors="x", freeze_word_vectors=True)
    )
    words.init_embeddings(["cat"], torch.ones(1, 8))
    before = words.word_embedding.weight.detach().clone()
    words(SENTENCES).vectors.sum().backward()
    row = int(VOCABULARY.rows([["cat"]])[0, 0])
    training = words.word_embedding.weight.grad.abs().sum(1) > 0
    assert not training[row]
    assert training.sum() > 5
    assert torch.equal(before[row], torch.ones(8))


def test_only_words_of_the_training_text_are_trained():
    torch.manual_seed(0)
    pretrained = ["once", "Elsewhere", "twice"]
    vocabulary = WordVocabulary.from_sentences(
        [["twice", "twice", "once", "rare"]], pretrained=pretrained
    )
    assert (vocabulary.words, vocabulary.num_trained) == (["twice", "once", "elsewhere"], 4)
    settings = tiny_settings(elmo="none", character_filters=0, dropout=0.0, word_vectors="x")
    words = WordFeatures(vocabulary, settings)
    words.init_embeddings(pretrained, torch.arange(3.0)[:, None].expand(3, 8))
    features = words.eval()([["twice", "elsewhere", "once"]]).vectors
    assert features[0, :, 0].tolist() == [2, 1, 0]
    features.sum().backward()
    assert words.word_embedding.weight.grad[:, 0].tolist() == [0, 0, 1, 1]


def test_products_of_words_have_the_same_mean_with_dropout(model):
    """Words of two sentences, with different dropout masks, and words of one sentence."""
    torch.manual_seed(0)
    settings = tiny_settings(elmo="output", elmo_dropout=0.5)
    words = WordFeatures(VOCABULARY, settings, frozen=CachedLayers(model))
    batches = words(SENTENCES[:1]), words(SENTENCES[1:2])
    hidden = torch.randn(2, 1, batches[0].mask.shape[1], 30)

    def products():
        (first, undropped), (second, _) = (
            words.normalized_output(states, features, 0.4)
            for states, features in zip(hidden, batches, strict=True)
        )
        return [(first * second).sum().item(), (first * undropped).sum().item()]

    training = np.mean([products() for _ in range(4000)], 0)
    words.eval()
    assert min(map(abs, products())) > 20
    np.testing.assert_allclose(training, products(), rtol=0.1)


def test_dropout_rates_are_those_of_the_settings(model):
    settings = tiny_settings(elmo="both", dropout=0.25, elmo_dropout=0.75)
    words = WordFeatures(VOCABULARY, settings, frozen=CachedLayers(model))
    words.fit_normalizer(model.embed(SENTENCES))

    def dropped_shares():
        features = words(SENTENCES)
        output = words.add_to_output(features.vectors[..., :0], features)
        parts = (
            *features.vectors[features.mask].split([8, 12, words.elmo_dim], -1),
            output[features.mask],
        )
        return [(part == 0).float().mean().item() for part in parts]

    torch.manual_seed(0)
    training = np.mean([dropped_shares() for _ in range(50)], 0)
    np.testing.assert_allclose(training, [0.25, 0.25, 0.75, 0.75], atol=0.05)
    words.eval()
    assert max(dropped_shares()) < 0.05


def test_rare_words_are_often_replaced_by_unknown_in_training():
    vocabulary = WordVocabulary.from_sentences([["rare", "rare"], ["common"] * 998, ["once"]])
    words = WordFeatures(vocabulary, tiny_settings(elmo="none", character_filters=0, dropout=0.0))
    unknown = words.eval()([["once"]]).vectors[0, 0]
    words.train()
    features = words([["rare"] * 500, ["common"] * 500]).vectors
    num_unknown = (features == unknown).all(2).sum(1)
    assert 25 < num_unknown[0] < 90  # 0.25 of 2.25
    assert num_unknown[1] < 5
    loaded = WordFeatures(WordVocabulary(vocabulary.words), tiny_settings(elmo="none"))
    assert not loaded._unknown_probability.any()


def test_a_word_has_one_row_in_any_case_and_quotes():
    vocabulary = WordVocabulary.from_sentences([["“", "Don’t", '"', "don't"]])
    assert vocabulary.words == ['"', "don't"]
    assert vocabulary.rows([["”", "DON'T"]]).tolist() == [[2, 3]]
    assert vocabulary.rows([[], ["”"]]).dtype == torch.long


def test_boundaries_do_not_count_in_character_statistics():
    words = WordFeatures(VOCABULARY, tiny_settings(elmo="none"))
    words.train()
    words([("cat",)])
    mean = words.char_mean.clone()
    words([("<S>",)])
    assert torch.equal(words.char_mean, mean)
    rows, _ = CharacterIndexer(words.char_encoder.config.max_characters).encode(["cat"])
    torch.testing.assert_close(mean, words.char_encoder(torch.from_numpy(rows))[0].detach())
