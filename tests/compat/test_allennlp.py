import copy
import json
from io import StringIO

import h5py
import numpy as np
import pytest
import torch

import elmokit
from elmokit.compat.allennlp import (
    ConfigurationError,
    Elmo,
    ElmoBiLm,
    ElmoCharacterEncoder,
    ELMoCharacterMapper,
    ElmoEmbedder,
    ElmoLstm,
    ELMoTokenCharactersIndexer,
    ElmoTokenEmbedder,
    ElmoTokenEmbedderMultiLang,
    ScalarMix,
    batch_to_ids,
    empty_embedding,
)
from elmokit.compat.allennlp.ids_and_masks import (
    add_sentence_boundary_token_ids,
    get_text_field_mask,
    remove_sentence_boundaries,
)
from random_models import make_folder

SENTENCES = [
    ["The", "sentence", "."],
    ["ELMo", "helps", "disambiguate", "ELMo", "from", "Elmo", "."],
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("model"), size=0.7)
    return folder / "options.json", folder / "weights.hdf5"


# --- modules/elmo_test ---


def test_representations_have_their_shape_and_mask(files):
    output = Elmo(*files, 2, dropout=0.0)(batch_to_ids(SENTENCES))
    assert [r.shape for r in output["elmo_representations"]] == [(2, 7, 12)] * 2
    assert output["mask"].tolist() == [[True] * 3 + [False] * 4, [True] * 7]
    assert not output["elmo_representations"][0][0, 3:].any()


def test_boundaries_can_be_kept(files):
    output = Elmo(*files, 2, dropout=0.0, keep_sentence_boundaries=True)(batch_to_ids(SENTENCES))
    assert [r.shape for r in output["elmo_representations"]] == [(2, 9, 12)] * 2
    assert output["mask"].sum(1).tolist() == [5, 9]


def test_four_dimensions_equal_three_after_a_reset(files):
    elmo = Elmo(*files, 1, dropout=0.0)
    ids = batch_to_ids([*SENTENCES, *SENTENCES, ["x"], ["y", "z"]])
    flat = elmo(ids)
    elmo._elmo_lstm._elmo_lstm.reset_states()
    folded = elmo(ids.view(2, 3, 7, 50))
    assert folded["mask"].shape == (2, 3, 7)
    torch.testing.assert_close(
        folded["elmo_representations"][0].flatten(0, 1), flat["elmo_representations"][0]
    )


def test_a_module_can_be_passed_instead_of_files(files):
    bilm = ElmoBiLm(*files)
    own = Elmo(None, None, 1, dropout=0.0, module=bilm)
    expected = Elmo(*files, 1, dropout=0.0)(batch_to_ids(SENTENCES))
    actual = own(batch_to_ids(SENTENCES))
    torch.testing.assert_close(actual["elmo_representations"], expected["elmo_representations"])
    with pytest.raises(ConfigurationError, match="Don't provide options_file or weight_file"):
        Elmo(*files, 1, module=bilm)
    with pytest.raises(ConfigurationError, match="give options_file and weight_file, or module"):
        Elmo(None, None, 1)


def test_cached_words_equal_uncached_ones(files):
    vocabulary = ["@@PADDING@@", *sorted({word for s in SENTENCES for word in s})]
    numbers = torch.tensor(
        [[vocabulary.index(w) for w in s] + [0] * (7 - len(s)) for s in SENTENCES]
    )
    ids = batch_to_ids(SENTENCES)
    plain = Elmo(*files, 2, dropout=0.0)
    cached = Elmo(*files, 2, dropout=0.0, vocab_to_cache=vocabulary)
    for _ in range(2):  # the second time with carried state
        expected, actual = plain(ids), cached(ids, numbers)
        assert torch.equal(actual["mask"], expected["mask"])
        torch.testing.assert_close(actual["elmo_representations"], expected["elmo_representations"])
    folded = cached(ids[None], numbers[None])
    assert folded["elmo_representations"][0].shape == (1, 2, 7, 12)


def test_cached_words_follow_new_weights(files):
    vocabulary = ["@@PADDING@@", "here", "there"]
    elmo = Elmo(*files, 1, dropout=0.0, vocab_to_cache=vocabulary, stateful=False)
    ids, numbers = batch_to_ids([["here", "there"]]), torch.tensor([[1, 2]])
    elmo(ids, numbers)
    elmo.load_state_dict({k: v * 0.9 for k, v in elmo.state_dict().items()})
    torch.testing.assert_close(
        elmo(numbers, numbers)["elmo_representations"], elmo(ids)["elmo_representations"]
    )


def test_fine_tuned_words_are_not_cached(files, caplog):
    elmo = Elmo(*files, 1, requires_grad=True, vocab_to_cache=["@@PADDING@@", "here"])
    assert "words are not cached: their vectors change" in caplog.text
    elmo(batch_to_ids([["here"]]), torch.tensor([[1]]))["elmo_representations"][0].sum().backward()
    assert elmo._elmo_lstm.bilm.encoder.projection.weight.grad is not None


def test_word_inputs_without_a_cache_are_ignored(files, caplog):
    elmo = Elmo(*files, 1, dropout=0.0, stateful=False)
    ids = batch_to_ids([["here"]])
    actual = elmo(ids, torch.tensor([[1]]))
    assert "it does not have a cached vocab" in caplog.text
    torch.testing.assert_close(actual["elmo_representations"], elmo(ids)["elmo_representations"])


def test_models_with_other_max_characters_work(tmp_path):
    folder = make_folder(tmp_path, width=30)
    files = folder / "options.json", folder / "weights.hdf5"
    actual = ElmoEmbedder(*files).embed_sentence(["a", "sentence"])
    np.testing.assert_allclose(
        actual, elmokit.load(folder).embed([["a", "sentence"]])[0], atol=2e-6
    )
    elmo = Elmo(*files, 1, dropout=0.0)
    elmo(batch_to_ids([["a"]], max_characters=30))
    with pytest.raises(
        ConfigurationError, match=r"words have 50 character ids, expected 30; make them with"
    ):
        elmo(batch_to_ids([["a"]]))


def test_batches_without_words_work(files):
    actual = Elmo(*files, 1)(torch.zeros(1, 0, 50, dtype=torch.long))
    assert actual["elmo_representations"][0].shape == (1, 0, 12)
    assert actual["mask"].shape == (1, 0)
    nothing = Elmo(*files, 1)(batch_to_ids([]))
    assert nothing["elmo_representations"][0].shape == (0, 0, 12)
    assert encoder_of(files)(batch_to_ids([]))["token_embedding"].shape == (0, 2, 6)


def test_words_outside_the_cache_are_encoded_by_characters(files):
    cached = Elmo(*files, 1, dropout=0.0, vocab_to_cache=["@@PADDING@@", "here"])
    ids = batch_to_ids([["here", "there"]])
    actual = cached(ids, torch.tensor([[1, 2]]))["elmo_representations"][0]
    expected = Elmo(*files, 1, dropout=0.0)(ids)["elmo_representations"][0]
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_the_bilm_is_trained_only_on_request(files, requires_grad):
    elmo = Elmo(*files, 1, requires_grad=requires_grad)
    elmo(batch_to_ids(SENTENCES))["elmo_representations"][0].sum().backward()
    for name, parameter in elmo.named_parameters():
        expected = requires_grad or name.startswith("scalar_mix")
        assert (parameter.grad is not None) == expected, name


def test_fixed_mixes_are_not_trained(files):
    elmo = Elmo(*files, 1, scalar_mix_parameters=[-9e10, 1, -9e10])
    assert not elmo.get_submodule("scalar_mix_0").gamma.requires_grad
    names = [name for name, _ in elmo.named_parameters() if name.startswith("scalar_mix")]
    assert names == [
        "scalar_mix_0.gamma",
        *(f"scalar_mix_0.scalar_parameters.{k}" for k in range(3)),
    ]


def test_state_is_carried_by_default(files):
    ids = batch_to_ids(SENTENCES)
    stateful, stateless = Elmo(*files, 1, dropout=0.0), Elmo(*files, 1, dropout=0.0, stateful=False)
    first = stateful(ids)["elmo_representations"][0]
    assert not torch.allclose(stateful(ids)["elmo_representations"][0], first, atol=1e-3)
    torch.testing.assert_close(stateless(ids)["elmo_representations"][0], first)
    torch.testing.assert_close(stateless(ids)["elmo_representations"][0], first)


def test_state_is_carried_when_the_batch_size_changes(files):
    elmo = Elmo(*files, 1, dropout=0.0)
    alone = [Elmo(*files, 1, dropout=0.0) for _ in range(3)]
    for size in (2, 1, 3, 2):
        batch = [["a", "b"], ["c"], ["d", "e", "f"]][:size]
        together = elmo(batch_to_ids(batch))["elmo_representations"][0]
        for row, sentence in enumerate(batch):
            expected = alone[row](batch_to_ids([sentence]))["elmo_representations"][0][0]
            torch.testing.assert_close(together[row, : len(sentence)], expected)


def test_old_ways_to_reset_the_state_work(files):
    elmo, ids = Elmo(*files, 1, dropout=0.0), batch_to_ids(SENTENCES)
    first = elmo(ids)["elmo_representations"][0]
    elmo._elmo_lstm._elmo_lstm._states = None
    torch.testing.assert_close(elmo(ids)["elmo_representations"][0], first)
    elmo._elmo_lstm._elmo_lstm.stateful = False
    torch.testing.assert_close(elmo(ids)["elmo_representations"][0], first)


def test_state_follows_the_module(files):
    elmo = Elmo(*files, 1, dropout=0.0)
    elmo(batch_to_ids(SENTENCES))
    elmo.double()
    assert elmo(batch_to_ids(SENTENCES))["elmo_representations"][0].dtype == torch.float64


def test_a_module_can_be_copied_and_pickled(files, tmp_path):
    elmo, ids = Elmo(*files, 1, dropout=0.0, stateful=False), batch_to_ids(SENTENCES)
    expected = elmo(ids)["elmo_representations"]
    torch.testing.assert_close(copy.deepcopy(elmo)(ids)["elmo_representations"], expected)
    torch.save(elmo, tmp_path / "elmo")
    again = torch.load(tmp_path / "elmo", weights_only=False)
    torch.testing.assert_close(again(ids)["elmo_representations"], expected)


def allennlp_names(elmo):
    """The state of our Elmo as AllenNLP would have saved it, written from its own source."""
    bilm, state = elmo._elmo_lstm.bilm, {}
    for name, tensor in elmo.state_dict().items():
        if name.startswith("scalar_mix"):
            state[name] = tensor
    embedder, lstm = "_elmo_lstm._token_embedder.", "_elmo_lstm._elmo_lstm."
    encoder = bilm.encoder
    state[embedder + "_char_embedding_weights"] = encoder.embedding.weight
    for k, (layer, (seen, made)) in enumerate(
        zip(encoder.filters, encoder.config.filters, strict=True)
    ):
        kernel = layer.weight.view(made, seen, -1).permute(0, 2, 1)
        state[f"{embedder}char_conv_{k}.weight"] = kernel
        state[f"{embedder}char_conv_{k}.bias"] = layer.bias
    for k, highway in enumerate(encoder.highways):
        for kind in ("weight", "bias"):
            parts = [getattr(highway.transform, kind), -getattr(highway.gate, kind)]
            state[f"{embedder}_highways._layers.{k}.{kind}"] = torch.cat(parts)
    for kind in ("weight", "bias"):
        state[f"{embedder}_projection.{kind}"] = getattr(encoder.projection, kind)
    for direction, stack in zip(("forward", "backward"), bilm.lstms, strict=True):
        for k, layer in enumerate(stack.layers):

            def theirs(tensor):
                i, f, o, g = tensor.chunk(4)
                return torch.cat([i, f, g, o])

            name = f"{lstm}{direction}_layer_{k}."
            bias = layer.bias.clone()
            bias[12:24] += 1
            state[name + "input_linearity.weight"] = theirs(layer.input_weight)
            state[name + "state_linearity.weight"] = theirs(layer.recurrent_weight)
            state[name + "state_linearity.bias"] = theirs(bias)
            state[name + "state_projection.weight"] = layer.projection
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def test_a_checkpoint_of_allennlp_is_loaded(files, tmp_path):
    tuned = Elmo(*files, 1, dropout=0.0)
    with torch.no_grad():
        for parameter in tuned.parameters():
            parameter.mul_(0.9)
        tuned._elmo_lstm.bilm.encoder.embedding.weight[0] = 0
    model = torch.nn.ModuleDict({"elmo": Elmo(*files, 1, dropout=0.0)})
    model.load_state_dict({f"elmo.{k}": v for k, v in allennlp_names(tuned).items()})
    ids = batch_to_ids(SENTENCES)
    torch.testing.assert_close(
        model["elmo"](ids)["elmo_representations"], tuned(ids)["elmo_representations"]
    )
    again = Elmo(*files, 1, dropout=0.0)
    again.load_state_dict(tuned.state_dict())
    cached = allennlp_names(tuned) | {"_elmo_lstm._word_embedding.weight": torch.zeros(3, 6)}
    again.load_state_dict(cached)


def test_weights_that_elmokit_saved_before_are_loaded(files):
    elmo = Elmo(*files, 1, dropout=0.0, stateful=False)
    parts = "_elmo_lstm._token_embedder.", "_elmo_lstm._elmo_lstm.bilm."
    old = {}
    for name, tensor in elmo.state_dict().items():
        for part in parts:
            name = name.replace(part, "_elmo_lstm.bilm.")  # noqa: PLW2901
        old[name] = tensor * 0.9
    assert "_elmo_lstm.bilm.encoder.projection.weight" in old
    elmo.load_state_dict(old)
    assert torch.equal(
        elmo._elmo_lstm.bilm.encoder.projection.weight,
        old["_elmo_lstm.bilm.encoder.projection.weight"],
    )


def test_training_with_carried_state_works_twice(files):
    elmo = Elmo(*files, 1, requires_grad=True)
    for _ in range(2):
        elmo(batch_to_ids(SENTENCES))["elmo_representations"][0].sum().backward()


def test_padding_in_front_is_read_as_allennlp_read_it(files):
    """The end is put after as many steps as there are words, and so many steps are run."""
    ids = torch.cat([torch.zeros(1, 1, 50, dtype=torch.long), batch_to_ids([["a", "b"]])], 1)
    bilm = ElmoBiLm(*files, stateful=False)
    output = bilm(ids)
    embedding = bilm._token_embedder(ids)["token_embedding"]
    assert output["mask"].tolist() == [[True, False, True, True, False]]
    end = bilm._token_embedder(batch_to_ids([["</S>"]]))["token_embedding"][0, 1]
    assert torch.equal(embedding[0, 3], end)
    assert embedding[0, 1].any()  # AllenNLP's vector of padding, which the LSTMs read
    assert not output["activations"][0][0, [1, 4]].any()
    expected = bilm._elmo_lstm(embedding[:, :3], torch.ones(1, 3))
    torch.testing.assert_close(torch.stack(output["activations"][1:])[:, :, :3], expected)
    assert not output["activations"][2][0, 3:].any()


def test_states_can_be_read_assigned_and_copied(files):
    elmo, ids = Elmo(*files, 1, dropout=0.0), batch_to_ids(SENTENCES)
    lstm = elmo._elmo_lstm._elmo_lstm
    assert lstm._states is None
    elmo(ids)
    assert [state.shape for state in lstm._states] == [(2, 2, 12), (2, 2, 24)]
    again = copy.deepcopy(elmo)
    expected = elmo(ids)["elmo_representations"][0]
    torch.testing.assert_close(again(ids)["elmo_representations"][0], expected)
    again._elmo_lstm._elmo_lstm._states = tuple(state.clone() for state in lstm._states)
    expected = elmo(ids)["elmo_representations"][0]
    torch.testing.assert_close(again(ids)["elmo_representations"][0], expected)
    lstm.reset_states(torch.tensor([True, False]))
    assert not lstm._states[0][:, 0].any()
    assert lstm._states[1][:, 1].all()
    with pytest.raises(elmokit.InputError, match="the mask has 3 rows, expected 2"):
        lstm.reset_states(torch.ones(3))


# --- modules/stacked_elmo_lstm_test ---


def test_lstms_are_zero_at_padding_and_keep_the_states_of_rows_without_words():
    lstm = ElmoLstm(3, 5, 7, 2, memory_cell_clip_value=2, state_projection_clip_value=1)
    inputs, lengths = torch.rand(4, 5, 3, requires_grad=True), torch.tensor([5, 4, 0, 1])
    mask = torch.arange(5) < lengths[:, None]
    lstm._states = torch.rand(2, 4, 10), torch.rand(2, 4, 14)
    before = lstm._states[0][:, 2]
    outputs = lstm(inputs, mask)
    assert outputs.shape == (2, 4, 5, 10)
    assert not outputs[:, ~mask].any()
    assert outputs[:, mask].all()
    assert [state.shape for state in lstm._states] == [(2, 4, 10), (2, 4, 14)]
    torch.testing.assert_close(lstm._states[0][:, 2], before)
    outputs.sum().backward()
    assert inputs.grad[mask].all()
    assert all(parameter.grad is not None for parameter in lstm.parameters())
    with pytest.raises(ConfigurationError, match="recurrent_dropout_probability is 0"):
        ElmoLstm(3, 5, 7, 2, recurrent_dropout_probability=0.1)


def test_lstms_can_be_loaded_alone(files):
    bilm = ElmoBiLm(*files, stateful=False)
    lstm = ElmoLstm(
        6, 6, 12, 2, memory_cell_clip_value=3, state_projection_clip_value=3, requires_grad=True
    )
    lstm.load_weights(files[1])
    assert lstm.bilm.config.cell_clip == bilm.bilm.config.cell_clip
    output = bilm._token_embedder(batch_to_ids(SENTENCES))
    expected = bilm._elmo_lstm(output["token_embedding"], output["mask"])
    torch.testing.assert_close(lstm(output["token_embedding"], output["mask"]), expected)
    assert lstm(output["token_embedding"], output["mask"]).requires_grad
    elmo = Elmo(*files, 1)
    state = allennlp_names(elmo)
    for part, prefix in ((lstm, "_elmo_lstm._elmo_lstm."), (encoder_of(files), ENCODER)):
        own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        part.load_state_dict(own)


ENCODER = "_elmo_lstm._token_embedder."


def encoder_of(files):
    return ElmoCharacterEncoder(*files)


def test_the_character_encoder_adds_the_boundaries(files):
    encoder = encoder_of(files)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    output = encoder(batch_to_ids([["<S>", "a"], ["</S>"]]))
    vectors = output["token_embedding"]
    assert output["mask"].tolist() == [[True] * 4, [True] * 3 + [False]]
    assert torch.equal(vectors[0, 0], vectors[0, 1])
    assert torch.equal(vectors[1, 1], vectors[1, 2])
    assert torch.equal(vectors[1, 2], vectors[0, 3])
    assert encoder.get_output_dim() == vectors.shape[2] == 6
    with pytest.raises(elmokit.InputError, match="ids from 0 to 262, expected 0 to 261"):
        encoder(torch.full((1, 1, 50), 262).index_fill(2, torch.tensor(3), 0))


# --- nn/util_test ---


def test_boundaries_of_ids_are_added_and_removed():
    ids = torch.tensor([[1, 2, 3], [4, 5, 0], [0, 0, 0]])
    padded, mask = add_sentence_boundary_token_ids(ids, ids > 0, 9, 10)
    assert padded.tolist() == [[9, 1, 2, 3, 10], [9, 4, 5, 10, 0], [9, 10, 0, 0, 0]]
    assert torch.equal(mask, padded > 0)
    rows = torch.stack([ids, ids], 2)
    padded, mask = add_sentence_boundary_token_ids(rows, ids > 0, np.array([9, 8]), [10, 7])
    assert padded[1].tolist() == [[9, 8], [4, 4], [5, 5], [10, 7], [0, 0]]
    inner, inner_mask = remove_sentence_boundaries(padded.float(), mask)
    assert torch.equal(inner, rows.float())
    assert torch.equal(inner_mask, ids > 0)
    assert remove_sentence_boundaries(padded, mask.long())[1].dtype == torch.long
    with pytest.raises(elmokit.InputError, match=r"ids have the shape \(3,\), expected"):
        add_sentence_boundary_token_ids(ids[0], ids[0] > 0, 9, 10)


def test_the_mask_of_a_text_field_is_that_of_its_ids():
    ids, characters = torch.tensor([[1, 0]]), torch.tensor([[[1, 2], [0, 0]]])
    for field in (
        {"tokens": ids, "elmo": characters},
        {"tokens": {"tokens": ids}, "elmo": {"elmo_tokens": characters}},
        {"elmo": characters},
        {"elmo": {"elmo_tokens": characters, "mask": ids}},
        {"mask": ids},
    ):
        assert get_text_field_mask(field).tolist() == [[True, False]]


# --- modules/token_embedders/elmo_token_embedder_test ---


class Vocabulary:
    def get_token_to_index_vocabulary(self, namespace):
        assert namespace == "tokens"
        return {"@@PADDING@@": 0, "here": 1}


def test_a_token_embedder_is_one_mix_that_may_be_projected(files):
    ids = batch_to_ids(SENTENCES)
    plain = ElmoTokenEmbedder(*files, dropout=0.0, stateful=False)
    expected = Elmo(*files, 1, dropout=0.0, stateful=False)(ids)["elmo_representations"][0]
    torch.testing.assert_close(plain(ids), expected)
    assert plain.get_output_dim() == 12
    params = {
        "type": "elmo_token_embedder", "options_file": files[0], "weight_file": files[1],
        "projection_dim": 5, "namespace_to_cache": "tokens", "dropout": 0.0,
    }  # fmt: skip
    projected = ElmoTokenEmbedder.from_params(vocab=Vocabulary(), params=params)
    assert projected.get_output_dim() == 5
    assert projected._elmo._elmo_lstm._words == ["<S>", "</S>", "@@PADDING@@", "here"]
    projected.load_state_dict(
        plain.state_dict() | projected._projection.state_dict(prefix="_projection.")
    )
    expected = projected._projection(expected[:, None]).expand(2, 2, 7, 5)
    torch.testing.assert_close(
        projected(ids[:, None].expand(2, 2, 7, 50).contiguous())[:1], expected[:1]
    )


class Params(dict):
    """AllenNLP's Params, as far as its files to archive go."""

    def __init__(self, **values):
        super().__init__(values)
        self.archived = []

    def add_file_to_archive(self, name):
        self.archived.append(name)


def test_each_language_has_its_model_and_its_alignment(files, tmp_path):
    matrix = np.random.default_rng(0).standard_normal((12, 12))
    torch.save(matrix, tmp_path / "es.pth")
    torch.save(torch.zeros(12, 12), tmp_path / "fr.pth")
    languages = ("en", "es", "fr")
    params = Params(
        options_files=Params(**dict.fromkeys(languages, files[0])),
        weight_files=Params(**dict.fromkeys(languages, files[1])),
        aligning_files={"es": tmp_path / "es.pth", "fr": tmp_path / "fr.pth", "en": ""},
        dropout=0.0,
    )
    embedder = ElmoTokenEmbedderMultiLang.from_params(vocab=None, params=params)
    assert params["weight_files"].archived == [*languages]
    ids = batch_to_ids(SENTENCES)
    english = embedder(ids, lang="en")
    aligned = english @ torch.from_numpy(matrix).float().t()
    torch.testing.assert_close(embedder(ids, lang="es"), aligned, atol=1e-6, rtol=1e-6)
    assert not embedder(ids, lang="fr").any()
    assert not embedder.aligning_es.weight.requires_grad
    assert ElmoTokenEmbedderMultiLang({"en": files[0]}, {"en": files[1]}, projection_dim=4)(
        ids, "en"
    ).shape == (2, 7, 4)


class Malicious:
    def __reduce__(self):
        return print, ("executed",)


def test_alignments_that_do_not_fit_are_refused(files, tmp_path, capsys):
    def load(name, value):
        torch.save(value, tmp_path / name)
        one = {"en": files[0]}, {"en": files[1]}
        ElmoTokenEmbedderMultiLang(*one, aligning_files={"en": tmp_path / name})

    with pytest.raises(elmokit.FormatError, match=r"small\.pth: a matrix has the shape \(2, 2\)"):
        load("small.pth", torch.eye(2))
    with pytest.raises(elmokit.FormatError, match=r"bad\.pth: holds Python objects besides"):
        load("bad.pth", Malicious())
    with pytest.raises(elmokit.FormatError, match=r"text\.pth: holds str, expected one array"):
        load("text.pth", "text")
    assert "executed" not in capsys.readouterr().out
    with pytest.raises(ConfigurationError, match=r"the languages \['en'\], but weight_files of"):
        ElmoTokenEmbedderMultiLang({"en": files[0]}, {"fr": files[1]})


# --- commands/elmo_test ---


@pytest.fixture
def embedder(files):
    return ElmoEmbedder(*files)


def embed_lines(embedder, tmp_path, lines, **settings):
    target = tmp_path / "out.hdf5"
    embedder.embed_file(StringIO("".join(line + "\n" for line in lines)), target, **settings)
    return h5py.File(target)


def test_embed_file_gives_the_layers_of_each_sentence(files, tmp_path):
    expected = ElmoEmbedder(*files).embed_sentence(["Michael", "went", "to", "the", "store"])
    with embed_lines(ElmoEmbedder(*files), tmp_path, ["Michael went to the store"]) as file:
        assert set(file) == {"0", "sentence_to_index"}
        assert file["0"].shape == (3, 5, 12)
        assert file["0"].dtype == np.float32
        np.testing.assert_allclose(file["0"][...], expected, rtol=1e-4)
        assert json.loads(file["sentence_to_index"][0]) == {"Michael went to the store": "0"}


def test_a_failed_embed_file_leaves_nothing(embedder, tmp_path):
    lines = [f"line{k}" for k in range(9)]
    with pytest.raises(elmokit.InputError, match="cannot be a key"):
        embed_lines(embedder, tmp_path, [*lines, "line3"], use_sentence_keys=True, batch_size=2)
    assert not [*tmp_path.iterdir()]
    with embed_lines(embedder, tmp_path, lines[:3], batch_size=2, output_format="top") as file:
        assert len(file) == 4


@pytest.mark.parametrize(("form", "layer"), [("top", 2), ("average", None)])
def test_output_formats_are_those_of_allennlp(files, tmp_path, form, layer):
    expected = ElmoEmbedder(*files).embed_sentence(["a", "b"])
    with embed_lines(ElmoEmbedder(*files), tmp_path, ["a b"], output_format=form) as file:
        wanted = expected.mean(0) if layer is None else expected[layer]
        np.testing.assert_allclose(file["0"][...], wanted, rtol=1e-5, atol=1e-6)


def test_every_line_has_its_key(embedder, tmp_path):
    lines = ["Michael went to the store", "Joel / went", "", "Michael went to the store"]
    with embed_lines(embedder, tmp_path, lines) as file:
        assert set(file) == {"0", "1", "2", "3", "sentence_to_index"}
        assert file["2"].shape == (3, 0, 12)
        assert json.loads(file["sentence_to_index"][0])["Michael went to the store"] == "3"


def test_sentences_can_be_keys_or_left_out(embedder, tmp_path):
    with embed_lines(embedder, tmp_path, ["a b", "c / d"], use_sentence_keys=True) as file:
        assert set(file) == {"a b", "c "}
        assert file["c / d"].shape == (3, 3, 12)
    with embed_lines(embedder, tmp_path, ["a b"], forget_sentences=True) as file:
        assert set(file) == {"0"}
    with pytest.raises(elmokit.InputError, match=r"line 2 .* it is the key of an earlier one"):
        embed_lines(embedder, tmp_path, ["a", "a"], use_sentence_keys=True)


def test_an_empty_sentence_has_the_models_width(embedder):
    assert embedder.embed_sentence([]).shape == (3, 0, 12)
    assert [v.shape for v in embedder.embed_batch([["a"], []])] == [(3, 1, 12), (3, 0, 12)]
    assert [*embedder.embed_sentences([])] == []
    assert empty_embedding().shape == (3, 0, 1024)


def test_an_empty_sentence_alone_keeps_the_state(files):
    one, other = ElmoEmbedder(*files), ElmoEmbedder(*files)
    for embedder in (one, other):
        embedder.embed_sentence(["a"])
    one.embed_sentence([])
    np.testing.assert_array_equal(one.embed_sentence(["a"]), other.embed_sentence(["a"]))


def test_the_file_names_its_model(embedder, files, tmp_path):
    with embed_lines(embedder, tmp_path, ["a b"]) as file:
        hash_ = elmokit.load(*files).pretrained.fingerprint()
        assert file.attrs["model"] == hash_


def test_without_state_an_embedder_repeats_itself(files):
    embedder = ElmoEmbedder(*files, stateful=False)
    np.testing.assert_array_equal(embedder.embed_sentence(["a"]), embedder.embed_sentence(["a"]))


def test_the_default_addresses_stand_for_the_published_original(monkeypatch):
    monkeypatch.delenv("ELMOKIT_MODELS", raising=False)
    with pytest.raises(elmokit.DownloadError, match=r"original: not on this machine, and offline"):
        ElmoEmbedder()


def test_an_unknown_output_format_is_refused(embedder, tmp_path):
    with pytest.raises(
        ConfigurationError, match="output_format is 'x', expected 'all', 'top' or 'average'"
    ):
        embed_lines(embedder, tmp_path, ["a"], output_format="x")


# --- modules/scalar_mix_test ---


def test_a_mix_is_the_weighted_sum():
    mix = ScalarMix(3)
    tensors = [torch.randn(3, 4, 5) for _ in range(3)]
    for k in range(3):
        mix.scalar_parameters[k].data[0] = 0.1 * (k + 1)
    mix.gamma.data[0] = 0.5
    shares = np.exp([0.1, 0.2, 0.3]) / np.exp([0.1, 0.2, 0.3]).sum()
    expected = 0.5 * sum(share * t.numpy() for share, t in zip(shares, tensors, strict=True))
    np.testing.assert_almost_equal(mix(tensors).detach().numpy(), expected, decimal=6)


def test_a_mix_refuses_other_numbers_of_layers():
    with pytest.raises(ConfigurationError, match="2 tensors were passed, but the module was"):
        ScalarMix(3)([torch.zeros(1, 2)] * 2)
    with pytest.raises(ConfigurationError, match="Length of initial_scalar_parameters"):
        ScalarMix(3, initial_scalar_parameters=[1.0])
    with pytest.raises(ConfigurationError, match="do_layer_norm needs a mask"):
        ScalarMix(1, do_layer_norm=True)([torch.zeros(1, 2)])


def test_a_mix_takes_arrays_and_other_numbers():
    mix = ScalarMix(2, initial_scalar_parameters=np.array([1.0, 2.0]))
    assert mix([torch.ones(1, 2).half()] * 2).dtype == torch.float32
    assert mix([torch.ones(1, 2).double()] * 2).dtype == torch.float64
    with pytest.raises(ConfigurationError, match="Length of initial_scalar_parameters"):
        ScalarMix(2, initial_scalar_parameters=[])


def test_a_mix_can_be_trained_or_fixed_from_given_weights():
    fixed = ScalarMix(3, initial_scalar_parameters=[1, 2, 3], trainable=False)
    assert [p.item() for p in fixed.scalar_parameters] == [1, 2, 3]
    assert not any(p.requires_grad for p in fixed.parameters())


def test_a_mix_with_layer_norm_counts_words_only():
    mix = ScalarMix(3, do_layer_norm=True, initial_scalar_parameters=[0.1, 0.2, 0.3])
    tensors = [torch.randn(3, 2, 5) for _ in range(3)]
    mask = torch.tensor([[1, 1], [1, 0], [0, 0]], dtype=torch.bool)
    expected = 0
    shares = np.exp([0.1, 0.2, 0.3]) / np.exp([0.1, 0.2, 0.3]).sum()
    for share, tensor in zip(shares, tensors, strict=True):
        seen = tensor[mask].numpy()
        expected = expected + share * (tensor.numpy() - seen.mean()) / seen.std()
    np.testing.assert_almost_equal(mix(tensors, mask).detach().numpy(), expected, decimal=5)


# --- data/token_indexers/elmo_indexer_test ---


def row(*ids):
    return [259, *ids, 260] + [261] * (48 - len(ids))


def test_tokens_have_the_ids_of_allennlp():
    indexer = ELMoTokenCharactersIndexer()
    assert indexer.tokens_to_indices(["<S>"], None, "test-elmo") == {"test-elmo": [row(257)]}
    assert indexer.tokens_to_indices(["</S>"]) == {"elmo_tokens": [row(258)]}
    assert indexer.tokens_to_indices([chr(256) + "t"]) == {"elmo_tokens": [row(197, 129, 117)]}
    assert indexer.tokens_to_indices([]) == {"elmo_tokens": []}


def test_added_tokens_have_a_character_of_their_own():
    indexer = ELMoTokenCharactersIndexer(tokens_to_add={"<first>": 1, "<second>": 2})
    actual = indexer.tokens_to_indices(["<second>", "<first>", "<third>"])["elmo_tokens"]
    assert actual == [row(3), row(2), row(*(byte + 1 for byte in b"<third>"))]


def test_tokens_are_padded_with_zeros():
    indexer = ELMoTokenCharactersIndexer()
    ids = indexer.tokens_to_indices(["Second", "."])
    padded = indexer.as_padded_tensor_dict(ids, {"elmo_tokens": 3})["elmo_tokens"]
    assert padded.shape == (3, 50)
    assert not padded[2].any()
    assert padded[:2].tolist() == batch_to_ids([["Second", "."]])[0].tolist()
    assert ELMoCharacterMapper().convert_word_to_char_ids(".") == row(47)


def test_a_string_is_a_sentence_of_characters():
    assert torch.equal(batch_to_ids(["SEQ"]), batch_to_ids([["S", "E", "Q"]]))


def test_a_token_without_text_is_refused():
    with pytest.raises(ConfigurationError, match="the text of a token is None, expected a string"):
        ELMoTokenCharactersIndexer().tokens_to_indices([None])


def test_mappers_are_compared_by_what_they_add():
    assert ELMoCharacterMapper({"a": 1}) == ELMoCharacterMapper({"a": 1})
    assert ELMoCharacterMapper({"a": 1}) != ELMoCharacterMapper()
    assert ELMoTokenCharactersIndexer().get_empty_token_list() == {"elmo_tokens": []}


def test_words_may_be_bytes_of_numpys_arrays(files):
    words = ["naïve", "word"]
    expected = batch_to_ids([words])
    encoded = [word.encode() for word in words]
    for array in (np.array([words]), np.array([words], object), np.array([encoded]),
                  np.array([encoded], object)):  # fmt: skip
        assert torch.equal(batch_to_ids(array), expected)
        vectors = ElmoEmbedder(*files).embed_batch(array)
        np.testing.assert_array_equal(vectors, ElmoEmbedder(*files).embed_batch([words]))
    indexer = ELMoTokenCharactersIndexer()
    assert indexer.tokens_to_indices(encoded) == indexer.tokens_to_indices(words)


def test_the_indexer_answers_both_versions_of_allennlp():
    indexer = ELMoTokenCharactersIndexer(token_min_padding_length=3)
    counter = {}
    indexer.count_vocab_items("word", counter)
    assert counter == {}
    ids = indexer.tokens_to_indices(["a", "b"], None, "elmo")
    assert indexer.get_keys("elmo") == ["elmo"]
    assert indexer.get_token_min_padding_length() == 3
    assert indexer.get_padding_token() == []
    assert indexer.get_padding_lengths(ids["elmo"][0]) == {}
    assert indexer.get_padding_lengths(ids) == {"elmo": 3}
    old = indexer.as_padded_tensor(ids, {"elmo": 3}, {})["elmo"]
    assert torch.equal(old, indexer.as_padded_tensor_dict(ids, {"elmo": 3})["elmo"])
    begin = torch.tensor(ELMoCharacterMapper.beginning_of_sentence_characters) + 1
    assert torch.equal(begin, batch_to_ids([["<S>"]])[0, 0])


def test_an_object_with_a_text_is_a_token():
    class Token:
        text = "the"

    assert ELMoTokenCharactersIndexer().tokens_to_indices([Token()]) == {
        "elmo_tokens": [row(117, 105, 102)]
    }
