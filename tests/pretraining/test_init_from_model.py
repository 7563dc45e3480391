"""Initial weights from another model."""

import pytest
import torch

import elmokit
from elmokit.errors import InputError
from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.init_from_model import copy_weights
from elmokit.pretraining.run_directory import RunDirectory
from elmokit.pretraining.trainer import Trainer, pretrain
from random_models import make_corpus
from tiny_run import changed, weights_of


def test_init_from_copies_the_weights_of_shared_words(corpus, uninterrupted, tmp_path):
    source = elmokit.load(uninterrupted).pretrained
    words = ["<S>", "</S>", "<UNK>", "owl", "the", "new"]
    folder = make_corpus(tmp_path / "c", [["the", "new", "owl"]] * 9, vocabulary=words)
    trainer = Trainer(Corpus.open(folder), changed(steps=1))
    copied = copy_weights(source, trainer.pretrained)
    assert "5 of 6 words" in copied
    old = source.model.softmax.weight[source.vocabulary.ids(["owl", "the"])]
    assert torch.equal(trainer.model.softmax.weight[3:5], old)
    for name, parameter in trainer.model.bilm.named_parameters():
        assert torch.equal(parameter, source.model.bilm.get_parameter(name))
    with pytest.raises(InputError, match="cell_size"):
        copy_weights(source, Trainer(Corpus.open(folder), changed(cell_size=16)).pretrained)


def test_a_run_with_initial_weights_resumes_and_quotes_their_card(corpus, uninterrupted, tmp_path):
    source, settings = elmokit.load(uninterrupted).pretrained, changed(seed=1, steps=8)
    pretrain(corpus, settings, tmp_path / "uninterrupted", init_from=source)

    trainer = Trainer(corpus, settings)
    copy_weights(source, trainer.pretrained)
    trainer.initial_card = source.card
    for _ in range(3):
        trainer.train_step()
    directory = RunDirectory(tmp_path / "killed", corpus, settings, writes=True)
    with directory.lock():
        directory.save_checkpoint(trainer.checkpoint())
    pretrain(corpus, settings, tmp_path / "killed", init_from=source)
    assert weights_of(tmp_path / "killed") == weights_of(tmp_path / "uninterrupted")
    for name in ("killed", "uninterrupted"):
        card = elmokit.load(tmp_path / name).pretrained.card
        assert f"8 steps of {trainer.words_per_step} words" in card
        past = card.split("started from the weights of another model")[1]
        assert f"24 steps of {trainer.words_per_step} words" in past


def test_init_from_copies_the_word_embeddings_of_another_vocabulary(corpus, tmp_path):
    source = Trainer(corpus, changed(input="words")).pretrained
    words = ["<S>", "</S>", "<UNK>", "owl", "new"]
    other = Corpus.open(make_corpus(tmp_path, [["new", "owl"]] * 9, vocabulary=words))
    target = Trainer(other, changed(input="words", seed=1)).pretrained
    assert "4 of 5 words" in copy_weights(source, target)
    old, new = (p.model.bilm.encoder.embedding.weight for p in (source, target))
    assert torch.equal(new[1 + 3], old[1 + source.vocabulary.ids(["owl"]).item()])


def test_init_from_copies_the_clusters_of_an_adaptive_softmax(corpus, tmp_path):
    adaptive = {"projection_size": 16, "cell_size": 16, "softmax": "adaptive"}
    source = Trainer(corpus, changed(**adaptive, cutoffs=(6,))).pretrained
    words = ["<S>", "</S>", "<UNK>", "owl", "the", "new", "red", "dog"]
    folder = Corpus.open(make_corpus(tmp_path / "c", [["the", "new", "owl"]], vocabulary=words))
    trainer = Trainer(folder, changed(**adaptive, cutoffs=(5,), seed=1))
    before = {name: weight.clone() for name, weight in trainer.model.softmax.state_dict().items()}
    copied = copy_weights(source, trainer.pretrained)

    new, old = (pretrained.model.softmax.classes for pretrained in (trainer.pretrained, source))
    at = dict(zip(words, source.vocabulary.ids(words).tolist(), strict=True))
    assert at["the"] < 6 <= min(at["owl"], at["dog"])  # owl is in another class now
    for word, word_id in (("<S>", 0), ("<UNK>", 2), ("the", 4)):
        assert torch.equal(new.head.weight[word_id], old.head.weight[at[word]])
        assert new.head.bias[word_id] == old.head.bias[at[word]]
    assert torch.equal(new.head.weight[3], before["classes.head.weight"][3])
    assert torch.equal(new.head.weight[5:], old.head.weight[6:])
    assert torch.equal(new.tail[0][0].weight, old.tail[0][0].weight)
    assert torch.equal(new.tail[0][1].weight[7 - 5], old.tail[0][1].weight[at["dog"] - 6])
    num_copied = sum((at[w] < 6) == (words.index(w) < 5) for w in words if w != "new")
    assert f"the softmax of {num_copied} of 8 words" in copied
    with pytest.raises(
        InputError, match=r"the cutoffs \(6,\), this run \(4, 6\); give this run as many"
    ):
        copy_weights(source, Trainer(folder, changed(**adaptive, cutoffs=(4, 6))).pretrained)
