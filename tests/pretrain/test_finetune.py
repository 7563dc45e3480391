"""A model that has read a text predicts it better, and is made once."""

from dataclasses import replace

import pytest

import elmokit
from elmokit import formats
from elmokit.errors import InputError
from elmokit.model.bilm import LanguageModel
from elmokit.model.softmax import AdaptiveSoftmax
from elmokit.pretrain import finetune as room
from elmokit.pretrain.finetune import adapt
from made import make_folder

SENTENCES = [tuple(f"word{(first + n) % 9}" for n in range(12)) for first in range(9)] * 8


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("source"), softmax_words=20, size=0.3)
    return formats.load(folder)


def bits_of(folder):
    return (folder / "model.safetensors").read_bytes()


def test_what_was_read_is_predicted_better_and_the_rest_stays_as_it_was(source, tmp_path):
    told = []
    found = adapt(source, SENTENCES, tmp_path / "read", epochs=10, tell=told.append)
    before, after = (
        elmokit.Embedder(p).perplexity(SENTENCES).geometric_mean for p in (source, found)
    )
    assert after < before / 2
    assert found.tokenizer == source.tokenizer == "moses"
    assert [*found.vocabulary] == [*source.vocabulary]
    assert "what was learnt of 20 of 20 words" in told[0]
    assert [path.name for path in tmp_path.iterdir()] == ["read"]  # nothing of the way is left
    assert elmokit.load(tmp_path / "read").embed([["a"]])[0].shape == (3, 1, 12)


@pytest.mark.parametrize("shape", [{"directions": 1}, {"projection_dim": 12}, {"n_layers": 1}])
def test_models_of_any_shape_read(shape, tmp_path):
    (tmp_path / "source").mkdir()
    source = formats.load(make_folder(tmp_path / "source", softmax_words=20, **shape))
    found = adapt(source, SENTENCES[:9], tmp_path / "read", epochs=1)
    assert found.model.bilm.config == source.model.bilm.config
    assert found.fingerprint() != source.fingerprint()


def test_an_adaptive_softmax_stays_one(tmp_path):
    (tmp_path / "source").mkdir()
    shape = {"dim": 20, "projection_dim": 16}
    source = formats.load(make_folder(tmp_path / "source", softmax_words=20, **shape))
    model = LanguageModel(source.model.bilm, AdaptiveSoftmax(20, 16, cutoffs=(5, 12)))
    adaptive = replace(source, model=model)
    found = adapt(adaptive, SENTENCES[:9], tmp_path / "read", epochs=1)
    assert found.model.softmax.cutoffs == (5, 12)


def test_a_model_that_was_made_is_taken_and_one_of_another_text_refused(
    source, tmp_path, monkeypatch
):
    found = adapt(source, SENTENCES, tmp_path / "read", epochs=1)
    monkeypatch.setattr(room, "pretrain", None)
    again = adapt(source, SENTENCES, tmp_path / "read", epochs=1)
    assert again.fingerprint() == found.fingerprint()
    for other in ({"epochs": 2}, {"sentences": SENTENCES[1:]}):
        ways = {"sentences": SENTENCES, "epochs": 1, **other}
        with pytest.raises(InputError, match="is not this model after it has read these sentences"):
            adapt(source, ways["sentences"], tmp_path / "read", epochs=ways["epochs"])


def test_one_that_was_killed_goes_on_and_ends_with_the_same_bits(source, tmp_path, monkeypatch):
    adapt(source, SENTENCES, tmp_path / "whole", epochs=2)

    def killed(*_, **__):
        raise KeyboardInterrupt

    for step in ("pretrain", "rename_atomically"):
        with monkeypatch.context() as patched:
            patched.setattr(room, step, killed)
            with pytest.raises(KeyboardInterrupt):
                adapt(source, SENTENCES, tmp_path / "read", epochs=2)
        assert not (tmp_path / "read").exists()
    adapt(source, SENTENCES, tmp_path / "read", epochs=2)
    assert bits_of(tmp_path / "read") == bits_of(tmp_path / "whole")


def test_what_cannot_be_read_is_refused(model, source, tmp_path):
    with pytest.raises(InputError, match="has no softmax, so it cannot read on; say adapt 0"):
        adapt(model.pretrained, SENTENCES, tmp_path / "read", epochs=1)
    with pytest.raises(InputError, match="has no vocabulary, so it cannot read on; say adapt 0"):
        adapt(replace(source, vocabulary=None), SENTENCES, tmp_path / "read", epochs=1)
    with pytest.raises(InputError, match="there is no sentence"):
        adapt(source, [()], tmp_path / "read", epochs=1)
