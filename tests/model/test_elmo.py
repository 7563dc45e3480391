import itertools

import numpy as np
import pytest
import torch
import torch.distributed
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

from elmokit.batching import Batch
from elmokit.character_ids import CharacterIndexer, WordIndexer
from elmokit.errors import ConfigError, InputError, NumericError
from elmokit.model.bilm import BiLM
from elmokit.model.elmo import Elmo
from elmokit.model_config import BiLMConfig, CharacterConfig
from elmokit.vocab import Vocabulary

CHARACTERS = CharacterConfig(
    max_characters=20, embedding_size=4, filters=((1, 4), (2, 8)), highway_layers=1
)
CONFIG = BiLMConfig(projection_size=6, cell_size=10, num_layers=2, characters=CHARACTERS)
SENTENCES = [["The", "first", "sentence", "."], ["A", "second"], []]


@pytest.fixture
def bilm():
    return BiLM(CONFIG)


def ids_of(sentences, width=20):
    longest = max(map(len, sentences))
    ids = np.zeros((len(sentences), longest, width), np.int64)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)], _ = CharacterIndexer(width).encode(sentence)
    return torch.from_numpy(ids)


def test_two_mixes_share_one_run_of_the_bilm(bilm):
    elmo = Elmo(bilm, mixes=2, dropout=0.0)
    with torch.no_grad():
        elmo.mixes[1].weights.copy_(torch.tensor([0.0, 0.0, 50.0]))
    mixed = elmo(SENTENCES)
    layers, _ = bilm(Batch.from_sentences(SENTENCES, CharacterIndexer(20)))
    assert [vectors.shape for vectors in mixed.vectors] == [(3, 4, 12)] * 2
    assert mixed.mask.tolist() == [[True] * 4, [True, True, False, False], [False] * 4]
    torch.testing.assert_close(mixed.vectors[0][0], layers[:, 0, 1:5].mean(0))
    torch.testing.assert_close(mixed.vectors[1][1, :2], layers[2, 1, 1:3])
    assert not mixed.vectors[0][~mixed.mask].any()


def test_words_ids_and_batches_give_the_same_vectors(bilm):
    elmo = Elmo(bilm, dropout=0.0)
    batch = Batch.from_sentences(SENTENCES, CharacterIndexer(20))
    expected = elmo(SENTENCES).vectors[0]
    assert torch.equal(elmo(batch).vectors[0], expected)
    torch.testing.assert_close(elmo(ids_of(SENTENCES)).vectors[0], expected)


def test_extra_dimensions_of_ids_are_kept(bilm):
    elmo = Elmo(bilm, dropout=0.0)
    ids = ids_of([*SENTENCES, ["more"], ["and", "more"], ["x"]])
    flat = elmo(ids)
    folded = elmo(ids.view(2, 3, 4, 20))
    assert folded.vectors[0].shape == (2, 3, 4, 12)
    assert folded.mask.shape == (2, 3, 4)
    assert torch.equal(folded.vectors[0].flatten(0, 1), flat.vectors[0])


def test_boundaries_can_be_kept(bilm):
    stripped = Elmo(bilm, dropout=0.0)(SENTENCES)
    with_boundaries = Elmo(bilm, dropout=0.0, boundaries=True)(SENTENCES)
    assert with_boundaries.vectors[0].shape == (3, 6, 12)
    assert with_boundaries.mask.sum(1).tolist() == [6, 4, 2]
    assert torch.equal(with_boundaries.vectors[0][0, 1:5], stripped.vectors[0][0])
    assert with_boundaries.vectors[0][2, :2].abs().sum(1).min() > 0


def test_only_the_mix_is_trained_with_a_frozen_bilm(bilm):
    elmo = Elmo(bilm)
    elmo(SENTENCES).vectors[0].sum().backward()
    learning = {name for name, p in elmo.named_parameters() if p.requires_grad}
    assert learning == {"mixes.0.weights", "mixes.0.scale"}
    assert all(parameter.grad is None for parameter in bilm.parameters())
    layers, state = elmo._run_bilm(Batch.from_sentences(SENTENCES, CharacterIndexer(20)), None)
    assert not layers.requires_grad
    assert not state.cell.requires_grad


@pytest.mark.parametrize(("mix", "lstms", "encoder"), [*itertools.product([True, False], repeat=3)])
def test_each_part_is_trained_only_if_chosen(bilm, mix, lstms, encoder):
    elmo = Elmo(bilm, train_mix=mix, train_lstms=lstms, train_char_cnn=encoder)
    loss = elmo(SENTENCES).vectors[0].square().sum()
    if not (mix or lstms or encoder):
        assert not loss.requires_grad
        return
    loss.backward()

    def trained_flags(module):
        return [parameter.grad is not None for parameter in module.parameters()]

    assert set(trained_flags(elmo.mixes)) == {mix}
    assert set(trained_flags(bilm.lstms)) == {lstms}
    assert set(trained_flags(bilm.encoder)) == {encoder}


def test_dropout_applies_in_training_only(bilm):
    elmo = Elmo(bilm, dropout=0.5)
    assert (elmo(SENTENCES).vectors[0][0] == 0).float().mean() > 0.2
    elmo.eval()
    assert torch.equal(elmo(SENTENCES).vectors[0], elmo(SENTENCES).vectors[0])


def test_chosen_layers_are_mixed(bilm):
    top = Elmo(bilm, dropout=0.0, layers=[2])(SENTENCES).vectors[0]
    layers, _ = bilm(Batch.from_sentences(SENTENCES, CharacterIndexer(20)))
    torch.testing.assert_close(top[0], layers[2, 0, 1:5])


@pytest.mark.parametrize("normalize", ["bilm-tf", "allennlp"])
def test_bilm_tf_and_allennlp_normalise_over_different_words(bilm, normalize):
    mixed = Elmo(bilm, dropout=0.0, normalize=normalize, layers=[1])(SENTENCES).vectors[0]
    batch = Batch.from_sentences(SENTENCES, CharacterIndexer(20))
    layer = bilm(batch)[0][1]
    counted = (
        layer[batch.mask] if normalize == "allennlp" else torch.cat([layer[0, 1:5], layer[1, 1:3]])
    )
    expected = (layer[0, 1:5] - counted.mean()) / counted.var(unbiased=False).sqrt()
    torch.testing.assert_close(mixed[0], expected)


def test_the_penalty_sums_over_mixes(bilm):
    elmo = Elmo(bilm, mixes=2, l2=0.5, weights=[1.0, 1.0, 0.0])
    assert elmo.penalty().item() == pytest.approx(2.0)
    assert elmo.layer_weights()[0] == pytest.approx([0.4223, 0.4223, 0.1554], abs=1e-4)


def test_a_state_is_carried_only_if_given(bilm):
    elmo = Elmo(bilm, dropout=0.0)
    first = elmo(SENTENCES)
    assert torch.equal(elmo(SENTENCES).vectors[0], first.vectors[0])
    assert not torch.equal(elmo(SENTENCES, first.state).vectors[0], first.vectors[0])


def test_a_nan_is_reported_with_its_sentence(bilm):
    with torch.no_grad():
        bilm.encoder.embedding.weight[ord("q") + 1] = float("nan")
    elmo = Elmo(bilm)
    elmo(SENTENCES)
    for module in (elmo, Elmo(bilm, normalize="bilm-tf")):
        with pytest.raises(NumericError, match=r"sentence 1 \(the queen\) has a vector that is"):
            module([["fine"], ["the", "queen"]])


@pytest.mark.parametrize("trained", [True, False])
def test_batches_without_words_work(bilm, trained):
    elmo = Elmo(bilm, train_lstms=trained, normalize="bilm-tf")
    elmo([]).vectors[0].sum().backward()
    assert elmo(torch.zeros(0, 5, 20, dtype=torch.long)).vectors[0].shape == (0, 5, 12)
    nothing = elmo(torch.zeros(2, 4, 20, dtype=torch.long)).vectors[0]
    assert nothing.shape == (2, 4, 12)
    assert not nothing.any()


@pytest.mark.parametrize("trained", [True, False])
def test_autocast_around_elmo_changes_nothing(bilm, trained):
    elmo = Elmo(bilm, dropout=0.0, train_lstms=trained, train_char_cnn=trained)
    expected = elmo(SENTENCES).vectors[0]
    with torch.autocast("cpu", torch.float16):
        actual = elmo(SENTENCES).vectors[0]
    torch.testing.assert_close(actual.float(), expected, atol=2e-3, rtol=0)
    actual.sum().backward()


def test_layers_that_are_not_run_are_not_trained(bilm):
    elmo = Elmo(bilm, layers=[0, 1], train_lstms=True)
    elmo(SENTENCES).vectors[0].sum().backward()
    assert all(p.grad is not None for p in elmo.parameters() if p.requires_grad)


def test_text_as_one_string_is_refused(bilm):
    with pytest.raises(TypeError, match="sentences is one string, expected a list of lists"):
        Elmo(bilm)("The cat")


def test_a_word_level_model_takes_batches():
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", "cat"])
    bilm = BiLM(
        BiLMConfig(
            projection_size=6, cell_size=10, num_layers=1, characters=None, vocabulary_size=4
        )
    )
    batch = Batch.from_sentences([["cat", "dog"]], WordIndexer(vocabulary))
    assert Elmo(bilm)(batch).vectors[0].shape == (1, 2, 12)
    with pytest.raises(InputError, match="a model with a vocabulary or lexicons, which are"):
        Elmo(bilm)([["cat"]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixes": 0}, "mixes is 0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"layers": [3]}, r"layers is \[3\], expected one or more of 0 to 2"),
        ({"layers": []}, r"layers is \[\]"),
    ],
)
def test_impossible_options_are_refused(bilm, options, message):
    with pytest.raises(ConfigError, match=message):
        Elmo(bilm, **options)


def test_ids_of_another_max_characters_are_refused(bilm):
    with pytest.raises(
        InputError, match=r"the shape \(1, 2, 50\), expected \(sentences, words, 20"
    ):
        Elmo(bilm)(torch.ones(1, 2, 50, dtype=torch.long))


def _train_a_share(rank, folder):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    elmo = Elmo(BiLM(CONFIG), dropout=0.0, train_lstms=True, train_char_cnn=True)
    parallel = DistributedDataParallel(elmo)
    parallel(ids_of([SENTENCES[rank]])).vectors[0].sum().backward()
    if rank == 0:
        torch.save([p.grad for p in elmo.parameters()], f"{folder}/grads")
    torch.distributed.destroy_process_group()


def test_distributed_training_equals_training_in_one_process(tmp_path):
    torch.multiprocessing.spawn(_train_a_share, args=(str(tmp_path),), nprocs=2)
    torch.manual_seed(0)
    elmo = Elmo(BiLM(CONFIG), dropout=0.0, train_lstms=True, train_char_cnn=True)
    (elmo(SENTENCES[:2]).vectors[0].sum() / 2).backward()
    actual = torch.load(tmp_path / "grads", weights_only=True)
    torch.testing.assert_close(actual, [p.grad for p in elmo.parameters()], rtol=1e-4, atol=1e-5)
