import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elmokit
from elmokit.batching import Batch
from elmokit.errors import FormatError, InputError
from elmokit.model.bilm import LanguageModel
from elmokit.pooling import POOLINGS, idf_weights, register_pooling
from random_models import SIZES, make_folder

PROSE = [
    "The old man sat on the bank of the river and watched the boats .",
    "She opened an account at the bank .",
    "Nobody knew",
    "why the plant had closed , and nobody at the plant would say anything about it to anyone .",
    "I ate an apple .",
    "Work !",
]
SENTENCES = [line.split() for line in PROSE]
words = st.text(st.characters(codec="utf-8"), max_size=12)
texts = st.lists(st.lists(words, max_size=9), max_size=12)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"), size=0.7)


@pytest.fixture(scope="session")
def language_model(tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("language-model"), softmax_words=13)
    return elmokit.load(folder)


def assert_close(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6)


# --- the same sentence, the same vectors ---


@given(texts)
@pytest.mark.filterwarnings("ignore:sentence .* is one word with spaces")
def test_repeating_a_call_gives_the_same_bits(folder, sentences):
    first, other = elmokit.load(folder), elmokit.load(folder, cache_bytes=0)
    expected = first.embed(sentences)
    other.embed(SENTENCES)
    for model in (first, other):
        for one, again in zip(expected, model.embed(sentences), strict=True):
            np.testing.assert_array_equal(one, again)


def test_a_batch_of_ids_has_the_bits_of_its_sentences(folder):
    model = elmokit.load(folder, state="warm")
    batch = Batch.from_sentences(SENTENCES, model.pretrained.indexer)
    layers = model.session.run_batch(batch)[:, :, 1:-1].numpy()
    for row, expected in enumerate(model.embed(SENTENCES)):
        np.testing.assert_array_equal(layers[:, row, : expected.shape[1]], expected)


def test_several_threads_may_use_one_model(folder):
    asked = [[f"word{k}", f"other{k % 7}", f"third{k * k}"] for k in range(300)]
    expected = elmokit.load(folder).embed(asked)
    model = elmokit.load(folder)
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda sentence: model.embed([sentence])[0], asked)]
    assert_close(found, expected)
    assert_close(model.embed(asked), expected)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_model_can_be_copied_and_sent_to_another_process(folder, again):
    model = elmokit.load(folder, state="warm", threads=1)
    other = again(model)
    assert_close(other.embed(SENTENCES), model.embed(SENTENCES))
    with torch.no_grad():
        for parameter in other.bilm.parameters():
            parameter.zero_()
    assert not any(vectors.any() for vectors in other.embed(SENTENCES))
    assert all(vectors.any() for vectors in model.embed(SENTENCES))


@given(texts, st.randoms(), st.integers(1, 60), st.sampled_from([0, 500, 10**6]))
@pytest.mark.filterwarnings("ignore:sentence .* is one word with spaces")
def test_order_batch_padding_and_cache_change_nothing(folder, sentences, random, tokens, cache):
    alone = [elmokit.load(folder).embed([sentence])[0] for sentence in sentences]
    model = elmokit.load(folder, tokens_per_batch=tokens, cache_bytes=cache)
    assert_close(model.embed(sentences), alone)
    order = random.sample(range(len(sentences)), len(sentences))
    assert_close(model.embed([sentences[k] for k in order]), [alone[k] for k in order])
    assert_close([*model.embed_stream(iter(sentences))], alone)


@pytest.mark.parametrize("size", ["small", "original"])
def test_a_sentence_has_the_same_vectors_in_any_batch_at_the_published_sizes(size):
    model = elmokit.Embedder(elmokit.Pretrained(LanguageModel(elmokit.BiLM(SIZES[size]))))
    together = model.embed(SENTENCES)
    assert np.abs(together[0]).max() > 0.1
    for sentence, expected in zip(SENTENCES[:3], together, strict=False):
        assert_close(model.embed([sentence]), [expected])
    for one, again in zip(together, model.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(one, again)


# --- what comes out ---


def test_arrays_have_the_documented_shape(model):
    vectors = model.embed([["a", "b"], [], ["c"]])
    assert [array.shape for array in vectors] == [(3, 2, 12), (3, 0, 12), (3, 1, 12)]
    assert all(array.dtype == np.float32 and array.flags.owndata for array in vectors)
    assert model.embed([]) == []
    assert (model.num_layers, model.dim) == (3, 12)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [("all", [0, 1, 2]), ("top", [2]), (1, [1]), (-1, [2]), ([2, 0], [2, 0]), ((), [])],
)
@pytest.mark.parametrize("state", ["zero", "carry", "warm"])
def test_chosen_layers_are_those_of_all(folder, layers, expected, state):
    everything = elmokit.load(folder, state=state).embed(SENTENCES)
    found = elmokit.load(folder, state=state).embed(SENTENCES, layers=layers)
    assert_close(found, [array[expected] for array in everything])


@pytest.mark.parametrize("state", ["zero", "carry"])
def test_combined_layers_come_out_as_one(folder, state):
    everything = elmokit.load(folder, state=state).embed(SENTENCES)
    for layers, combined in {
        "mean": [array.mean(0, keepdims=True) for array in everything],
        "concat": [np.concatenate([*array], 1)[None] for array in everything],
    }.items():
        assert_close(elmokit.load(folder, state=state).embed(SENTENCES, layers=layers), combined)


@pytest.mark.parametrize("state", ["zero", "carry"])
def test_each_direction_is_its_half(folder, state):
    both = elmokit.load(folder, state=state).embed(SENTENCES)
    forward = elmokit.load(folder, state=state).embed(SENTENCES, directions="forward")
    backward = elmokit.load(folder, state=state).embed(SENTENCES, directions="backward")
    assert_close(forward, [array[..., :6] for array in both])
    assert_close(backward, [array[..., 6:] for array in both])


def test_layers_that_are_not_needed_are_not_run(model_folder):
    model = elmokit.load(model_folder, kernel="torch")  # compiled layers call no hooks
    ran = []
    for direction, reader in zip(("forward", "backward"), model.bilm.lstms, strict=True):
        for number, layer in enumerate(reader.layers):
            name = f"{direction} {number}"
            layer.register_forward_hook(lambda *_, name=name: ran.append(name))
    model.embed(SENTENCES, layers=0)
    assert ran == []
    model.embed(SENTENCES, layers=1, directions="backward")
    assert ran == ["backward 0"]


def test_boundaries_are_kept_on_request(model):
    (kept,) = model.embed([["a", "b"]], boundaries=True)
    (stripped,) = model.embed([["a", "b"]])
    assert kept.shape == (3, 4, 12)
    np.testing.assert_array_equal(kept[:, 1:-1], stripped)


def test_sentences_of_a_stream_are_taken_as_needed(folder):
    model = elmokit.load(folder, tokens_per_batch=10)
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield ["some", "words"]

    stream = model.embed_stream(endless())
    assert next(stream).shape == (3, 2, 12)
    assert len(taken) <= 20


# --- the three ways to start ---


def test_carried_rows_continue_where_they_stopped(folder):
    model = elmokit.load(folder, state="carry")
    first = model.embed(SENTENCES[:3])
    second = model.embed(SENTENCES[:3])
    assert all(not np.allclose(a, b, atol=1e-3) for a, b in zip(first, second, strict=True))
    one_row = elmokit.load(folder, state="carry")
    one_row.embed(SENTENCES[1:2])
    assert_close(one_row.embed(SENTENCES[1:2]), second[1:2])


def test_a_smaller_call_leaves_the_other_rows_as_they_were(folder):
    model, expected = elmokit.load(folder, state="carry"), elmokit.load(folder, state="carry")
    model.embed(SENTENCES[:3])
    expected.embed(SENTENCES[:3])
    model.embed([["x"]])
    assert_close(model.embed(SENTENCES[:3])[1:], expected.embed(SENTENCES[:3])[1:])


def test_a_small_budget_does_not_change_what_is_carried(folder):
    one = elmokit.load(folder, state="carry")
    other = elmokit.load(folder, state="carry", tokens_per_batch=8)
    for _ in range(3):
        assert_close(one.embed(SENTENCES), other.embed(SENTENCES))


def test_a_carried_stream_is_one_running_text(folder):
    stream = elmokit.load(folder, state="carry").embed_stream(SENTENCES)
    model = elmokit.load(folder, state="carry")
    assert_close([*stream], [model.embed([sentence])[0] for sentence in SENTENCES])


def test_reset_forgets_and_a_saved_state_is_remembered(folder, tmp_path):
    model = elmokit.load(folder, state="carry")
    first = model.embed(SENTENCES)
    model.save_state(tmp_path / "state")
    second = model.embed(SENTENCES)
    model.reset_state()
    assert_close(model.embed(SENTENCES), first)
    other = elmokit.load(folder, state="carry")
    other.load_state(tmp_path / "state")
    assert_close(other.embed(SENTENCES), second)


def test_a_call_that_fails_carries_nothing(tmp_path):
    folder = make_folder(tmp_path, characters=False, table_words=9)
    words = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(words.replace("<UNK>", "word9"))
    model = elmokit.load(folder, state="carry", tokens_per_batch=4)
    first = model.embed([["word1"], ["word2", "word3"]])
    with pytest.raises(InputError, match="'x' is not in the vocabulary"):
        model.embed([["x"], ["word2", "word3"]])
    again = elmokit.load(folder, state="carry", tokens_per_batch=4)
    assert_close(again.embed([["word1"], ["word2", "word3"]]), first)
    assert_close(model.embed([["word1"]]), again.embed([["word1"]]))


def test_a_state_of_another_model_is_refused(folder, tmp_path):
    model = elmokit.load(folder, state="carry")
    model.embed(SENTENCES)
    model.save_state(tmp_path / "state")
    (tmp_path / "other").mkdir()
    other = elmokit.load(make_folder(tmp_path / "other", dim=20), state="carry")
    with pytest.raises(FormatError, match=r"memory has the shape .*; is it the file of this model"):
        other.load_state(tmp_path / "state")


def test_a_warm_start_is_the_same_for_all_and_not_zero(folder):
    warm = elmokit.load(folder, state="warm")
    together = warm.embed(SENTENCES)
    assert_close(together, [warm.embed([sentence])[0] for sentence in SENTENCES])
    cold = elmokit.load(folder).embed(SENTENCES)
    assert np.abs(together[0][1:] - cold[0][1:]).max() > 1e-3
    carried = elmokit.load(folder, state="carry")
    for _ in range(10):
        carried.embed([[]])
    assert_close(carried.embed(SENTENCES[:1]), together[:1])


# --- one vector a text ---


def test_padding_is_not_pooled(model):
    text = "The old man. She opened an account!"
    split = [["The", "old", "man", "."], ["She", "opened", "an", "account", "!"]]
    assert model.tokenize(text) == split
    vectors = np.concatenate(model.embed(split), 1)  # (layers, words, dim)
    others = [text, "A very much longer text that makes everything else padded , or so ."]
    for layers, expected in {
        "mean": vectors.mean(0), "top": vectors[2], 0: vectors[0], -2: vectors[1],
        "concat": np.concatenate([*vectors], 1),
    }.items():  # fmt: skip
        for pooling, pooled in {
            "mean": expected.mean(0), "max": expected.max(0),
            "first": expected[0], "last": expected[-1],
        }.items():  # fmt: skip
            found = model.encode(others, layers=layers, pooling=pooling)
            assert found.shape == (2, 36 if layers == "concat" else 12)
            np.testing.assert_allclose(found[0], pooled, atol=2e-6)


def test_a_mix_can_make_the_vector(model):
    mix = elmokit.ScalarMix(3, weights=[0.0, 0.0, 99.0], scale=2.0)
    found = model.encode([["a", "b"]], layers=mix)
    np.testing.assert_array_equal(found[0], model.embed([["a", "b"]], layers=mix)[0][0].mean(0))
    np.testing.assert_allclose(found, 2 * model.encode([["a", "b"]], layers="top"), atol=1e-5)


def test_one_string_gives_one_vector(model):
    text = "The old man. She opened an account!"
    np.testing.assert_array_equal(model.encode(text), model.encode([text])[0])


def test_layers_that_are_not_combined_are_encoded_each(model):
    found = model.encode(PROSE, layers=[2, 0])
    assert found.shape == (6, 2, 12)
    np.testing.assert_array_equal(found[:, 0], model.encode(PROSE, layers="top"))


def test_batch_size_changes_nothing(model):
    np.testing.assert_allclose(model.encode(PROSE, batch_size=2), model.encode(PROSE), atol=2e-6)


def test_vectors_can_be_normalized_and_tensors(model):
    raw = model.encode(PROSE)
    found = model.encode(PROSE, normalize_embeddings=True, convert_to_tensor=True)
    expected = torch.from_numpy(raw / np.linalg.norm(raw, axis=1, keepdims=True))
    torch.testing.assert_close(found, expected)


def test_similarity_is_the_cosine_of_all_pairs(model):
    one, other = model.encode(PROSE[:2]), model.encode(PROSE)
    found = model.similarity(torch.from_numpy(one), other)
    assert found.shape == (2, 6)
    expected = one[1] @ other[4] / np.linalg.norm(one[1]) / np.linalg.norm(other[4])
    assert found[1, 4] == pytest.approx(expected, abs=1e-6)
    assert model.similarity(one[0], other[0]).shape == (1, 1)


def test_rare_words_count_more_in_idf_pooling(language_model):
    vocabulary = language_model.pretrained.vocabulary
    words = ["word1", "word2", "unheard-of"]
    (vectors,) = language_model.embed([words], layers=0)
    weights = idf_weights(words, vocabulary)
    assert weights[2] == max(weights) > min(weights)
    found = language_model.encode([words], layers=0, pooling="idf")
    np.testing.assert_allclose(found[0], np.average(vectors[0], axis=0, weights=weights), atol=1e-6)


def test_idf_pooling_needs_a_vocabulary(model):
    with pytest.raises(InputError, match="pooling 'idf' needs a vocabulary"):
        model.encode(["a"], pooling="idf")


def test_whitened_vectors_are_those_of_the_whitening(model):
    raw = model.encode(PROSE)
    whitening = elmokit.Whitening.fit(raw)
    found = model.encode(PROSE, whitening=whitening)
    np.testing.assert_array_equal(found, whitening.transform(raw))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    with pytest.raises(InputError, match="the whitening was fitted to vectors of 12 dimensions"):
        model.encode(PROSE, layers="concat", whitening=whitening)
    assert not model.encode("", whitening=whitening).any()  # a text without words stays zero


def test_a_pooling_is_added_by_one_function(model):
    @register_pooling("middle", "the vector in the middle")
    def middle(text):
        return text.vectors[len(text.words) // 2]

    try:
        expected = model.embed([["a", "b", "c"]], layers="top")[0][0, 1]
        found = model.encode([["a", "b", "c"]], layers="top", pooling="middle")
        np.testing.assert_array_equal(found[0], expected)
    finally:
        del POOLINGS["middle"]


def test_repr_says_what_the_model_is(folder, language_model):
    assert repr(elmokit.load(folder, state="warm", kernel="torch")) == (
        f"Embedder({folder}, 3 layers of 12 dimensions, 5,748 parameters, float32 on cpu, "
        "kernel 'torch', tokenizer 'moses', no softmax, state 'warm')"
    )
    assert "softmax over 13 words" in repr(language_model)


def test_a_model_moves_to_a_device(model):
    expected = model.embed(SENTENCES)
    assert model.to("cpu") is model
    assert_close(model.embed(SENTENCES), expected)


def test_a_text_without_words_is_zero_and_keeps_its_row(model):
    found = model.encode(["", "word", "  \n", []])
    assert found.shape == (4, 12)
    assert (np.abs(found).sum(1) > 0).tolist() == [False, True, False, False]
    assert model.encode([]).shape == (0, 12)


def test_the_tokenizer_of_the_model_splits_its_text(folder):
    assert elmokit.load(folder, tokenizer="characters").tokenize("AC D") == [["A", "C", "D"]]
    assert elmokit.load(folder, tokenizer="spaces").tokenize("didn't go.") == [["didn't", "go."]]


# --- sizes ---


@pytest.mark.parametrize("length", [0, 1, 2, 5000])
def test_a_sentence_of_any_length_passes(model, length):
    (vectors,) = model.embed([["word", "two"] * (length // 2) + ["x"] * (length % 2)])
    assert vectors.shape == (3, length, 12)
    assert np.isfinite(vectors).all()


@pytest.mark.full
def test_a_sentence_of_100_000_words_passes(tmp_path):
    model = elmokit.load(make_folder(tmp_path, n_layers=1))
    sentence = [f"w{k % 1000}" for k in range(100_000)]
    (vectors,) = model.embed([sentence])
    assert vectors.shape == (2, 100_000, 12)
    (start,) = model.embed([sentence[:50]], directions="forward")
    np.testing.assert_allclose(vectors[:, :50, :6], start, atol=2e-6)


@pytest.mark.full
def test_memory_is_flat_over_100_000_sentences(folder):
    code = """
import resource, sys, elmokit
model = elmokit.load(sys.argv[1], cache_bytes=2**20, tokens_per_batch=1024)
sentences = ([f"w{k % 50000}", "is", f"v{k}", "."] for k in range(100_000))
for place, vectors in enumerate(model.embed_stream(sentences)):
    if place == 20_000:
        early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert place == 99_999
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - early) / 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 16  # MB; the vectors of 100,000 sentences would be 57


def test_a_long_sentence_does_not_blow_up_its_batch(folder, monkeypatch):
    model = elmokit.load(folder)
    areas = []
    run_lstms = model.bilm.run_lstms

    def seen(types, words, *rest, **named):
        areas.append(words.numel())
        return run_lstms(types, words, *rest, **named)

    monkeypatch.setattr(model.bilm, "run_lstms", seen)
    model.embed([["x"] * 3000, *([["a", "b"]] * 500)])
    assert max(areas) <= 4096


# --- words ---


def test_the_word_cache_notices_a_trained_encoder(model):
    (before,) = model.embed([["cat"]], layers=0)
    with torch.no_grad():
        model.bilm.encoder.projection.bias.add_(1.0)
    (after,) = model.embed([["cat"]], layers=0)
    np.testing.assert_allclose(after, before + 1, atol=1e-6)


@pytest.mark.parametrize("fused", [False, True])
def test_the_steps_of_an_optimizer_are_noticed(folder, fused):
    model = elmokit.load(folder)
    model.embed(SENTENCES)
    batch = elmokit.Batch.from_sentences(SENTENCES, model.pretrained.indexer)
    layers, _ = model.bilm(batch)
    layers.square().sum().backward()
    torch.optim.AdamW(model.bilm.parameters(), lr=0.01, fused=fused).step()
    expected = elmokit.Embedder(model.pretrained).embed(SENTENCES)
    for found, vectors in zip(model.embed(SENTENCES), expected, strict=True):
        np.testing.assert_array_equal(found, vectors)


@pytest.mark.parametrize("state", ["zero", "warm", "carry"])
def test_new_weights_are_noticed_however_they_came(folder, state):
    def fresh():
        return elmokit.Embedder(model.pretrained, elmokit.LoadOptions(state=state)).embed(SENTENCES)

    model = elmokit.load(folder, state=state)
    model.embed(SENTENCES)
    for change in (
        lambda: model.bilm.load_state_dict(
            {k: v * 0.9 for k, v in model.bilm.state_dict().items()}, assign=True
        ),
        lambda: torch.nn.utils.vector_to_parameters(
            0.9 * torch.nn.utils.parameters_to_vector(model.bilm.parameters()),
            model.bilm.parameters(),
        ),
        model.bilm.double,
        model.bilm.float,
    ):
        change()
        model.reset_state()
        assert_close(model.embed(SENTENCES), fresh())


def test_inference_mode_around_it_changes_nothing(folder):
    expected = elmokit.load(folder).embed(SENTENCES)
    with torch.inference_mode():
        model = elmokit.load(folder)
        assert_close(model.embed(SENTENCES[:3]), expected[:3])
    assert_close(model.embed(SENTENCES), expected)


def test_a_truncated_word_is_named_once(model, caplog):
    model.embed([["short", "x" * 49, "x" * 48, "x" * 49]])
    assert model.truncated_words == 1
    assert caplog.messages == [f"1 word was longer than 48 bytes and was cut: '{'x' * 48}…'"]
    model.embed([["x" * 49]])
    assert len(caplog.messages) == 1


def test_a_stream_warns_of_truncated_words_once(model, caplog):
    words = [[f"{number:060}"] for number in range(3000)]
    for _ in model.embed_stream(words):
        pass
    (message,) = caplog.messages
    assert message.startswith("3000 words were longer than 48 bytes and were cut: '0000")


# --- refusals ---


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.embed("text"), TypeError, "sentences is one string, expected a list of lists"),
        (lambda m: m.encode(3), TypeError, r"texts is an int \(3\), expected a list of texts"),
        (lambda m: m.encode(["a"], batch_size=0), InputError, "batch_size is 0, expected 1 or"),
        (lambda m: m.similarity(["a"], ["b"]), InputError, "similarity compares vectors"),
        (lambda m: m.similarity([[1, 2]], [[1]]), InputError, "vectors of 2 and of 1 dimensions"),
        (lambda m: m.to("nowhere"), InputError, "device 'nowhere' cannot be used here"),
        (lambda m: m.embed([["a"], ["b", 3]]), TypeError, "sentence 1, word 1 is an int"),
        (lambda m: m.embed([["a"]], layers=3), InputError, "layer 3 was asked for, but the model"),
        (lambda m: m.embed([["a"]], layers="x"), InputError, "layers is 'x'"),
        (lambda m: m.embed([["a"]], layers=None), InputError, "layer None was asked for"),
        (lambda m: m.encode(["a"], layers=1.5), InputError, "layer 1.5 was asked for"),
        (lambda m: m.embed_stream([], directions="up"), InputError, "directions is 'up'"),
        (lambda m: m.encode(["a"], pooling="sum"), InputError, "pooling is 'sum', expected one of"),
        (
            lambda m: m.encode(["a", None]),
            TypeError,
            "text 1 is None, expected a string",
        ),
        (lambda m: m.encode(["A. B.", ["a", 3]]), TypeError, "text 1, word 1 is an int"),
        (lambda m: m.save_state("x"), InputError, "nothing is carried with state='zero'"),
        (lambda m: m.load_state("x"), InputError, "nothing is carried with state='zero'"),
        (lambda m: m.encode(["a"], layers="last"), InputError, "layers is 'last', expected 'all'"),
        (
            lambda m: m.embed([["a"]], layers=elmokit.ScalarMix(2)),
            InputError,
            "a ScalarMix of 2 layers, but the model has 3",
        ),
    ],
)
def test_a_wrong_call_says_what_was_expected(model, call, error, message):
    with pytest.raises(error, match=message):
        call(model)


def test_invalid_settings_are_refused(folder):
    with pytest.raises(InputError, match="state is 'hot', expected 'zero', 'carry' or 'warm'"):
        elmokit.load(folder, state="hot")
    with pytest.raises(InputError, match="tokens_per_batch is 0, expected 1 or more"):
        elmokit.load(folder, tokens_per_batch=0)


def test_one_string_for_a_sentence_warns(model):
    with pytest.warns(UserWarning, match="sentence 0 is one string, not a list of words"):
        (vectors,) = model.embed(["I ate an apple"])
    assert vectors.shape == (3, 4, 12)
