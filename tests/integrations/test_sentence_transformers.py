"""The modules for sentence-transformers: the same vectors as encode, saved, loaded and trained."""

import json
import pickle
import warnings

import numpy as np
import pytest
import torch

import elmokit
from elmokit.errors import FormatError, InputError
from elmokit.model.bilm import LanguageModel
from elmokit.model.sentence_head import SentenceHead, SentenceHeadConfig
from elmokit.vocab import Vocabulary
from random_models import make_options, make_weights, write_files

pytest.importorskip("sentence_transformers", reason="needs elmokit[sentence-transformers]")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the libraries that it imports
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses, modules
    from sentence_transformers.sentence_transformer.evaluation import (
        EmbeddingSimilarityEvaluator,
    )

    from elmokit.integrations.sentence_transformers import (
        ElmoSentences,
        ElmoWords,
        load_sentence_transformer,
    )

WORDS = ["the", "bank", "lent", "money", "river", "Bank", "old", "boat"]
TEXTS = [
    "The bank lent money. An old boat sank! Did it?",
    "",
    "boat",
    "An old boat.\n\nThe river, and the bank.",
    "   ",
    ".",
]
PAIRS = {
    "first": ["The bank lent money.", "An old boat.", "the river", "old money. New money."],
    "second": ["Money was lent.", "the bank", "a river. A boat.", "money"],
    "score": [0.9, 0.1, 0.6, 0.7],
}


@pytest.fixture
def elmo(tmp_path):
    """A model with a vocabulary and a sentence head."""
    vocabulary = ["<S>", "</S>", "<UNK>", *WORDS]
    options = make_options() | {"bidirectional": True}
    weights = make_weights(options, softmax_words=len(vocabulary))
    (tmp_path / "elmo").mkdir()
    model = elmokit.load(write_files(tmp_path / "elmo", options, weights, vocabulary))
    head = SentenceHead(
        SentenceHeadConfig(
            context_free_size=6, projection_size=5, attention=True, context_layers=(1, 2),
            context_size=24, num_signs=10, table_words=8, table_codes=2, table_code_size=3,
            hidden_size=2,
        )
    )  # fmt: skip
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
        head.codes.random_(256)
    model.add_head("sentence", head)
    return model


def mean_of_words(elmo, **options):
    words = ElmoWords(elmo, **options)
    pooling = modules.Pooling(words.get_embedding_dimension(), "mean")
    return SentenceTransformer(modules=[words, pooling], device="cpu")


def encode(model, texts=TEXTS, **options):
    return model.encode(texts, show_progress_bar=False, **options)


def test_vectors_are_those_of_encode(elmo):
    expected = elmo.encode(TEXTS, layers="mean", pooling="mean")
    found = encode(mean_of_words(elmo))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not found[1].any()
    assert not found[4].any()
    expected = elmo.encode(TEXTS, pooling="sentence")
    found = encode(SentenceTransformer(modules=[ElmoSentences(elmo)], device="cpu"))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not found[1].any()


def test_a_batch_of_texts_without_words_gives_zeros(elmo):
    for model in (mean_of_words(elmo), SentenceTransformer(modules=[ElmoSentences(elmo)])):
        assert not encode(model, ["", "  "]).any()


def test_vectors_do_not_depend_on_the_batch(elmo):
    for model in (mean_of_words(elmo), SentenceTransformer(modules=[ElmoSentences(elmo)])):
        np.testing.assert_allclose(encode(model, batch_size=1), encode(model), atol=1e-6)


def test_words_have_the_vectors_of_embed(elmo):
    tokens = encode(mean_of_words(elmo), ["the old bank"], output_value="token_embeddings")
    (expected,) = elmo.embed([["the", "old", "bank"]], layers="mean")
    np.testing.assert_allclose(tokens[0].numpy(), expected[0], atol=1e-5)


def test_a_prompt_stands_before_the_text(elmo):
    found = encode(mean_of_words(elmo), ["bank"], prompt="the old ")
    expected = elmo.encode(["the old bank"], layers="mean", pooling="mean")
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_preprocess_gives_tensors_that_the_library_can_move_and_slice(elmo):
    for module in (ElmoWords(elmo), ElmoSentences(elmo)):
        features = module.preprocess(TEXTS)
        assert all(isinstance(value, torch.Tensor) for value in features.values())
        assert {len(value) for value in features.values()} == {len(TEXTS)}


def test_pairs_and_numbers_are_refused(elmo):
    module = ElmoWords(elmo)
    for text in (("the bank", 3), 3, None):
        with pytest.raises(InputError, match="expected a string or a list of words"):
            module.preprocess([text])


def test_a_model_whose_texts_depend_on_others_is_refused(tmp_path, elmo):
    with pytest.raises(InputError, match="state='zero'"):
        ElmoWords(elmokit.load(tmp_path / "elmo", state="carry"))


def test_a_head_that_is_not_there_is_named(tmp_path, elmo):
    with pytest.raises(InputError, match=r"'sentence' needs a head .* comes with none"):
        ElmoSentences(tmp_path / "elmo")
    with pytest.raises(InputError, match="pooling is 'mean', expected one of sentence, whitened"):
        ElmoSentences(elmo, pooling="mean")


@pytest.mark.parametrize("train_lstms", [False, True])
@pytest.mark.parametrize("kind", ["words", "sentences"])
def test_training_moves_what_was_asked_for_and_no_more(elmo, kind, train_lstms, tmp_path):
    if kind == "words":
        model = mean_of_words(elmo, train_lstms=train_lstms)
        trained = {"0.mix.weights", "0.mix.scale"}
    else:
        model = SentenceTransformer(modules=[ElmoSentences(elmo, train_lstms=train_lstms)])
        trained = {
            f"0.head.{name}"
            for name in (
                "attention", "codebooks", "hidden.bias", "hidden.weight", "output.weight",
                "projection.bias", "projection.weight",
            )
        }  # fmt: skip
    if train_lstms:
        trained |= {name for name, _ in model.named_parameters() if "bilm.lstms" in name}
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert {name for name, p in model.named_parameters() if p.requires_grad} == trained
    train(model, tmp_path / "run", losses.CosineSimilarityLoss(model))
    moved = {n for n, p in model.named_parameters() if not torch.equal(p.detach(), before[n])}
    assert trained - {"0.mix.scale"} <= moved <= trained  # cosines do not depend on the scale
    model.save(str(tmp_path / "saved"))
    loaded = load_sentence_transformer(tmp_path / "saved", device="cpu")
    np.testing.assert_array_equal(encode(loaded), encode(model))


def train(model, folder, loss):
    arguments = SentenceTransformerTrainingArguments(
        str(folder), num_train_epochs=2, per_device_train_batch_size=4, learning_rate=0.01,
        report_to="none", disable_tqdm=True, save_strategy="no", use_cpu=True,
        weight_decay=0.0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of accelerate and torch's data loader
        SentenceTransformerTrainer(
            model, args=arguments, train_dataset=Dataset.from_dict(PAIRS), loss=loss
        ).train()


def test_losses_that_slice_batches_train(elmo, tmp_path):
    model = SentenceTransformer(modules=[ElmoSentences(elmo)], device="cpu")
    before = model[0].head.projection.weight.detach().clone()
    pairs = Dataset.from_dict({name: PAIRS[name] for name in ("first", "second")})
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path), num_train_epochs=1, report_to="none", disable_tqdm=True,
        save_strategy="no", use_cpu=True,
    )  # fmt: skip
    loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        SentenceTransformerTrainer(model, args=arguments, train_dataset=pairs, loss=loss).train()
    assert not torch.equal(before, model[0].head.projection.weight)


@pytest.mark.parametrize("train_lstms", [False, True])
def test_training_leaves_the_given_model_and_its_head_alone(elmo, tmp_path, train_lstms):
    expected = elmo.encode(TEXTS)
    model = SentenceTransformer(modules=[ElmoSentences(elmo, train_lstms=train_lstms)])
    train(model, tmp_path, losses.CosineSimilarityLoss(model))
    np.testing.assert_array_equal(elmo.encode(TEXTS), expected)


@pytest.mark.parametrize("kind", ["words", "sentences"])
def test_the_given_model_keeps_its_bits_and_dtype(elmo, kind):
    before = {name: p.detach().clone() for name, p in elmo.bilm.named_parameters()}
    trainable = {name for name, p in elmo.bilm.named_parameters() if p.requires_grad}
    expected = elmo.encode(TEXTS)
    module = ElmoWords(elmo) if kind == "words" else ElmoSentences(elmo)
    SentenceTransformer(modules=[module], device="cpu").bfloat16()
    assert {p.dtype for p in module.bilm.parameters()} == {torch.bfloat16}
    for name, parameter in elmo.bilm.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, before[name])
        assert parameter.requires_grad == (name in trainable)
    np.testing.assert_array_equal(elmo.encode(TEXTS), expected)


@pytest.mark.parametrize("train_lstms", [False, True])
def test_sentences_are_encoded_and_trained_under_autocast(elmo, train_lstms):
    model = SentenceTransformer(modules=[ElmoSentences(elmo, train_lstms=train_lstms)])
    expected = encode(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close_rows(encode(model), expected)
        model(model[0].preprocess(TEXTS))["sentence_embedding"].float().sum().backward()
    assert model[0].head.projection.weight.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sentences_are_encoded_by_a_cast_model(elmo, dtype):
    model = SentenceTransformer(modules=[ElmoSentences(elmo)], device="cpu")
    expected = encode(model)
    model.to(dtype)
    found = encode(model, convert_to_tensor=True)
    assert found.dtype == dtype
    assert_close_rows(found.float().numpy(), expected)
    assert not encode(model, ["", " "]).any()


def assert_close_rows(found, expected):
    """Zero where zero is expected, and else near in the scale of the row."""
    scale = np.linalg.norm(expected, axis=1)
    assert (np.linalg.norm(found.astype(np.float32) - expected, axis=1) <= 0.05 * scale).all()


def test_saved_models_load_with_the_same_bits(elmo, tmp_path):
    for name, model in (
        ("words", mean_of_words(elmo)),
        ("sentences", SentenceTransformer(modules=[ElmoSentences(elmo)], device="cpu")),
    ):
        model.similarity_fn_name = "dot"
        model.prompts = {"query": "the bank: "}
        model.save(str(tmp_path / name))
        model.save(str(tmp_path / name))  # as trainers do
        loaded = load_sentence_transformer(tmp_path / name, device="cpu")
        np.testing.assert_array_equal(encode(loaded), encode(model))
        np.testing.assert_array_equal(
            encode(loaded, prompt_name="query"), encode(model, prompt_name="query")
        )
        assert loaded.similarity_fn_name == "dot"
        assert (tmp_path / name / "README.md").is_file()
        root = json.loads((tmp_path / name / "modules.json").read_text())[0]["path"]
        assert root  # a folder of its own, beside the library's README.md
        assert (tmp_path / name / root / "model" / "model.safetensors").is_file()


def test_the_library_itself_asks_for_trust(elmo, tmp_path):
    model = mean_of_words(elmo)
    model.save(str(tmp_path / "saved"))
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    loaded = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    np.testing.assert_array_equal(encode(loaded), encode(model))


def test_other_code_and_other_folders_are_refused(elmo, tmp_path):
    folder = tmp_path / "saved"
    mean_of_words(elmo).save(str(folder))
    saved = json.loads((folder / "modules.json").read_text())

    def change(**fields):
        (folder / "modules.json").write_text(json.dumps([{**saved[0], **fields}, saved[1]]))
        return load_sentence_transformer

    with pytest.raises(FormatError, match=r"'os\.system' is neither of elmokit nor of"):
        change(type="os.system")(folder)
    with pytest.raises(FormatError, match="neither of elmokit nor of"):
        change(type="sentence_transformers.util.import_from_string")(folder)
    with pytest.raises(FormatError, match="is outside the folder"):
        change(path="../elsewhere")(folder)
    with pytest.raises(FormatError, match=r"there is no modules\.json"):
        load_sentence_transformer(tmp_path)
    (folder / "modules.json").write_text('{"a": 1}')
    with pytest.raises(FormatError, match="expected a list of modules"):
        load_sentence_transformer(folder)
    (folder / "modules.json").write_text("[")
    with pytest.raises(FormatError, match=r"modules\.json: cannot be read as JSON"):
        load_sentence_transformer(folder)


def test_the_module_survives_a_pickle(elmo):
    model = mean_of_words(elmo)
    copy = pickle.loads(pickle.dumps(model))
    assert copy[0].embedder.bilm is copy[0].bilm
    np.testing.assert_array_equal(encode(copy), encode(model))


def test_the_evaluator_of_the_library_runs(elmo):
    evaluator = EmbeddingSimilarityEvaluator(PAIRS["first"], PAIRS["second"], PAIRS["score"])
    scores = evaluator(mean_of_words(elmo))
    assert -1 <= scores["spearman_cosine"] <= 1


def test_a_model_of_a_word_list_gives_the_vectors_of_encode(tmp_path):
    vocabulary = ["<S>", "</S>", "<UNK>", *WORDS]
    config = elmokit.BiLMConfig(6, 8, 2, None, vocabulary_size=len(vocabulary))
    pretrained = elmokit.Pretrained(LanguageModel(elmokit.BiLM(config)), Vocabulary(vocabulary))
    words = elmokit.Embedder(pretrained)
    expected = words.encode(TEXTS, layers="mean", pooling="mean")
    np.testing.assert_allclose(encode(mean_of_words(words)), expected, atol=1e-5)
