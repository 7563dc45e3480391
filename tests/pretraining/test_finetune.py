"""Fine-tuning a language model on sentences."""

from dataclasses import replace

import pytest

import elmokit
from elmokit import formats
from elmokit.atomic import ResumableDirectory
from elmokit.errors import InputError
from elmokit.model.bilm import LanguageModel
from elmokit.model.softmax import AdaptiveSoftmax
from elmokit.pretraining import finetune as finetuning
from elmokit.pretraining.finetune import finetune
from random_models import make_folder

SENTENCES = [tuple(f"word{(first + n) % 9}" for n in range(12)) for first in range(9)] * 8


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("source"), softmax_words=20, size=0.3)
    return formats.load(folder)


def weights_of(folder):
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.full
def test_a_finetuned_model_predicts_its_text_better(source, tmp_path):
    lines = []
    finetuned = finetune(source, SENTENCES, tmp_path / "finetuned", epochs=10, report=lines.append)
    before, after = (
        elmokit.Embedder(p).perplexity(SENTENCES).geometric_mean for p in (source, finetuned)
    )
    assert after < before / 2
    assert finetuned.tokenizer == source.tokenizer == "moses"
    assert [*finetuned.vocabulary] == [*source.vocabulary]
    assert "the softmax of 20 of 20 words" in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["finetuned"]  # no temporary files
    assert elmokit.load(tmp_path / "finetuned").embed([["a"]])[0].shape == (3, 1, 12)


@pytest.mark.parametrize("shape", [{"directions": 1}, {"projection_dim": 12}, {"n_layers": 1}])
def test_models_of_any_shape_are_finetuned(shape, tmp_path):
    (tmp_path / "source").mkdir()
    source = formats.load(make_folder(tmp_path / "source", softmax_words=20, **shape))
    finetuned = finetune(source, SENTENCES[:9], tmp_path / "finetuned", epochs=1)
    assert finetuned.model.bilm.config == source.model.bilm.config
    assert finetuned.fingerprint() != source.fingerprint()


def test_an_adaptive_softmax_stays_one(tmp_path):
    (tmp_path / "source").mkdir()
    shape = {"dim": 20, "projection_dim": 16}
    source = formats.load(make_folder(tmp_path / "source", softmax_words=20, **shape))
    model = LanguageModel(source.model.bilm, AdaptiveSoftmax(20, 16, cutoffs=(5, 12)))
    adaptive = replace(source, model=model)
    finetuned = finetune(adaptive, SENTENCES[:9], tmp_path / "finetuned", epochs=1)
    assert finetuned.model.softmax.cutoffs == (5, 12)


def test_a_finished_model_is_loaded_and_another_one_refused(source, tmp_path, monkeypatch):
    finetuned = finetune(source, SENTENCES, tmp_path / "finetuned", epochs=1)
    monkeypatch.setattr(finetuning, "pretrain", None)
    again = finetune(source, SENTENCES, tmp_path / "finetuned", epochs=1)
    assert again.fingerprint() == finetuned.fingerprint()
    for other in ({"epochs": 2}, {"sentences": SENTENCES[1:]}):
        sentences, epochs = other.get("sentences", SENTENCES), other.get("epochs", 1)
        with pytest.raises(InputError, match="is not this model fine-tuned on these sentences"):
            finetune(source, sentences, tmp_path / "finetuned", epochs=epochs)


@pytest.mark.full
def test_a_killed_call_is_resumed_with_the_same_weights(source, tmp_path, monkeypatch):
    finetune(source, SENTENCES, tmp_path / "uninterrupted", epochs=2)

    def killed(*_, **__):
        raise KeyboardInterrupt

    for owner, step in ((finetuning, "pretrain"), (ResumableDirectory, "publish")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, step, killed)
            with pytest.raises(KeyboardInterrupt):
                finetune(source, SENTENCES, tmp_path / "finetuned", epochs=2)
        assert not (tmp_path / "finetuned").exists()
    finetune(source, SENTENCES, tmp_path / "finetuned", epochs=2)
    assert weights_of(tmp_path / "finetuned") == weights_of(tmp_path / "uninterrupted")


def test_models_without_a_softmax_and_texts_without_words_are_refused(model, source, tmp_path):
    with pytest.raises(InputError, match="has no softmax, so it cannot be fine-tuned"):
        finetune(model.pretrained, SENTENCES, tmp_path / "finetuned", epochs=1)
    with pytest.raises(InputError, match="has no vocabulary, so it cannot be fine-tuned"):
        finetune(replace(source, vocabulary=None), SENTENCES, tmp_path / "finetuned", epochs=1)
    with pytest.raises(InputError, match="there is no sentence"):
        finetune(source, [()], tmp_path / "finetuned", epochs=1)
