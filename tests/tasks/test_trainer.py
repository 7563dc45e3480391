"""The trainer of all tasks: scores, resuming, settings, and runs that are refused."""

import copy
import json
import multiprocessing
import re
import resource
import signal
from dataclasses import replace
from itertools import count
from unittest.mock import Mock

import pytest
import torch

import elmokit
from elmokit import atomic
from elmokit.atomic import DirectoryLock, rename_atomically, write_atomically
from elmokit.errors import ConfigError, FormatError, InputError, NumericError, OutputError
from elmokit.tasks import saved_model, trainer
from elmokit.tasks.cached_layers import CachedLayers
from elmokit.tasks.datasets.example_records import LabelledText, TaggedSentence, TextPair
from elmokit.tasks.heads.tagger import Tagger
from elmokit.tasks.saved_model import load_task
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import CHECKPOINT_FILE, Checkpoint, train_task
from elmokit.tasks.word_features import read_word_vectors
from random_models import make_folder
from task_examples import EXAMPLES, example_of_length, tiny_settings


def weights_of(folder):
    (weights,) = folder.glob("head-*.safetensors")
    return weights.read_bytes()


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_learned_and_loaded_with_the_same_scores(name, model, tmp_path):
    examples = EXAMPLES[name]
    settings = tiny_settings(elmo="both", epochs=25, patience=0, l2=0.01)
    trained = train_task(TASKS[name], examples, examples, tmp_path, settings=settings, model=model)
    score = next(iter(trained.scores.values()))
    assert score > 0.9, trained.scores
    loaded = load_task(str(tmp_path))
    assert loaded.evaluate(examples) == trained.scores
    assert loaded.predict_examples(examples[:1]) == loaded.predict_examples(examples)[:1]
    weights = loaded.head.features.layer_weights()
    assert [*weights] == ["input", "output"]
    assert all(sum(values) == pytest.approx(1) for values in weights.values())
    assert all(
        mix.scale.item() != pytest.approx(0.2) for mix in loaded.head.features.scalar_mixes.values()
    )


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """A tagger without ELMo."""
    examples, out = EXAMPLES["pos"], tmp_path_factory.mktemp("tagger")
    return train_task("pos", examples, examples, out, settings=tiny_settings(elmo="none"))


def test_one_text_gives_one_prediction_and_several_a_list(tagger):
    prediction = tagger.predict("the owl sleeps")
    assert prediction.words == ("the", "owl", "sleeps")
    assert len(prediction.tags) == 3
    assert tagger.predict(["the owl sleeps", ["the", "owl", "sleeps"]]) == [prediction, prediction]
    assert tagger.predict(("the", "owl", "sleeps")) == prediction
    assert tagger.predict([]) == []
    (record,) = tagger.predict_json(["the owl sleeps"])
    assert record == {"sentences": (prediction.words,), "prediction": prediction.tags}


def test_raw_text_of_a_tagger_is_tokenized(tagger):
    assert tagger.tokenizer == "moses"
    assert tagger.predict("Is it Paris?").words == ("Is", "it", "Paris", "?")
    assert tagger.predict("Is it Paris?", tokenizer="spaces").words == ("Is", "it", "Paris?")


def test_the_repr_names_task_head_and_scores(tagger):
    assert re.fullmatch(
        r"TaskModel\('pos': Tagger, 6 labels, elmo 'none', tokenizer 'moses', accuracy \d\.\d+\)",
        repr(tagger),
    )


def test_lines_are_answered_until_one_is_refused(tmp_path):
    examples = EXAMPLES["srl"]
    model = train_task("srl", examples, examples, tmp_path, settings=tiny_settings(elmo="none"))
    outputs = model.apply(["the cat *sleeps*", "", "no predicate"])
    assert "sleeps" in next(outputs)
    assert next(outputs) == "\n"
    with pytest.raises(InputError, match=r"line 3: .*0 words between stars"):
        next(outputs)
    first, blank = model.apply(["the cat *sleeps*", " "], as_json=True)
    assert json.loads(first)["sentences"] == [["the", "cat", "sleeps"]]
    assert len(json.loads(first)["prediction"]) == 3
    assert json.loads(blank) is None


def test_raw_text_is_tokenized_as_the_training_text_was(tmp_path):
    (tmp_path / "texts").write_text("1\t很好\n0\t不好\n" * 4, "utf-8")
    file = tmp_path / "texts"
    settings = {**vars(tiny_settings(elmo="none")), "tokenizer": "characters"}
    trained = train_task("classification", file, file, tmp_path / "run", settings=settings)
    assert load_task(tmp_path / "run").tokenizer == "characters"
    assert trained.predict(["不好"]) == trained.predict(["不 好"], tokenizer="spaces")
    assert trained.evaluate(file) == trained.scores
    with pytest.raises(ConfigError, match="no tokenizer is called 'x'"):
        tiny_settings(tokenizer="x")


def test_iob2_spans_can_end_before_o_with_a_crf(tmp_path):
    examples = [TaggedSentence(("in", "New", "York", "now"), ("O", "B-LOC", "I-LOC", "O"))] * 8
    settings = tiny_settings(elmo="none", epochs=25, crf=True)
    trained = train_task(TASKS["pos"], examples, examples, tmp_path, settings=settings)
    assert trained.scores["accuracy"] == 1


@pytest.mark.parametrize("elmo", ["none", "input", "output"])
def test_elmo_is_added_where_the_settings_say(elmo, model, tmp_path):
    examples = EXAMPLES["ner"]
    settings = tiny_settings(elmo=elmo)
    trained = train_task(TASKS["ner"], examples, examples, tmp_path, settings=settings, model=model)
    assert [*trained.head.features.layer_weights()] == ([] if elmo == "none" else [elmo])
    assert (tmp_path / "elmo").is_dir() == (elmo != "none")


def test_a_finetuned_bilm_is_saved_with_the_head(model, tmp_path):
    fingerprint = model.pretrained.fingerprint()
    examples = EXAMPLES["pos"]
    settings = tiny_settings(finetune=True, character_filters=0, word_embedding_size=0)
    trained = train_task(TASKS["pos"], examples, examples, tmp_path, settings=settings, model=model)
    assert json.loads((tmp_path / "task.json").read_text())["elmo"] != fingerprint
    assert model.pretrained.fingerprint() == fingerprint
    assert trained.evaluate(examples) == trained.scores


def test_a_stopped_run_resumes_and_ends_with_the_same_bits(model, tmp_path, monkeypatch):
    task, examples, settings = TASKS["ner"], EXAMPLES["ner"], tiny_settings(epochs=4)
    train_task(task, examples, examples, tmp_path / "uninterrupted", settings=settings, model=model)

    def stop(*arguments, **options):
        lines.append(log(*arguments, **options))
        if len(lines) == 2:
            raise KeyboardInterrupt
        return lines[-1]

    lines, log = [], trainer._log_epoch
    monkeypatch.setattr(trainer, "_log_epoch", stop)
    with pytest.raises(KeyboardInterrupt):
        train_task(task, examples, examples, tmp_path / "stopped", settings=settings, model=model)
    train_task(task, examples, examples, tmp_path / "stopped", settings=settings, model=model)
    assert weights_of(tmp_path / "stopped") == weights_of(tmp_path / "uninterrupted")
    epochs = [
        json.loads(line)["epoch"]
        for line in (tmp_path / "stopped/log.jsonl").read_text().splitlines()
    ]
    assert epochs == [1, 2, 3, 4]
    train_task(
        task, examples, examples, tmp_path / "stopped", settings=settings, model=model
    )  # the run is over
    assert weights_of(tmp_path / "stopped") == weights_of(tmp_path / "uninterrupted")
    last = torch.load(tmp_path / "stopped" / CHECKPOINT_FILE, weights_only=True)
    assert (last["epoch"], last["weights"], last["optimizer"]) == (4, {}, {})


def test_the_best_epoch_is_kept(tmp_path, monkeypatch):
    examples, falling_score, saved = EXAMPLES["pos"], count(3, -1), []
    task = replace(TASKS["pos"], score=lambda *_: {"accuracy": next(falling_score)})

    def save(trained, *rest):
        saved.append(copy.deepcopy(trained.head.state_dict()))
        saved_model.save_task(trained, *rest)

    monkeypatch.setattr(trainer, "save_task", save)
    settings = tiny_settings(elmo="none", epochs=3)
    trained = train_task(task, examples, examples, tmp_path, settings=settings)
    assert (trained.epoch, trained.scores) == (1, {"accuracy": 3})
    (best,) = saved
    assert all(
        torch.equal(best[name], weight) for name, weight in trained.head.state_dict().items()
    )


class RecordingAdamW(torch.optim.AdamW):
    """An optimizer that records the learning rates and gradient norms of its steps."""

    steps = ()

    def step(self):
        rates = [group["lr"] for group in self.param_groups]
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        norm = torch.nn.utils.get_total_norm([grad for grad in grads if grad is not None])
        RecordingAdamW.steps.append((rates, norm.item()))
        super().step()


def test_learning_rates_fall_and_gradients_are_clipped(model, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", RecordingAdamW)
    monkeypatch.setattr(RecordingAdamW, "steps", [])
    examples, settings = EXAMPLES["pos"], tiny_settings(epochs=4, max_grad_norm=0.01)
    train_task(TASKS["pos"], examples, examples, tmp_path, settings=settings, model=model)
    rates, norms = zip(*RecordingAdamW.steps, strict=True)
    remaining = [1 - step / len(rates) for step in range(len(rates))]
    rate = settings.learning_rate
    assert [*rates] == [pytest.approx([rate * part, 10 * rate * part]) for part in remaining]
    assert max(norms) == pytest.approx(0.01, rel=1e-3)


def test_every_epoch_has_all_examples_in_its_own_order(tmp_path, monkeypatch):
    seen, loss = [], Tagger.loss
    monkeypatch.setattr(
        Tagger, "loss", lambda head, batch: (seen.extend(batch), loss(head, batch))[1]
    )
    examples = EXAMPLES["pos"]
    train_task(
        TASKS["pos"], examples, examples, tmp_path, settings=tiny_settings(elmo="none", epochs=2)
    )
    first, second = seen[: len(examples)], seen[len(examples) :]
    assert first != second
    assert sorted(first, key=repr) == sorted(second, key=repr) == sorted(examples, key=repr)


def test_a_large_l2_penalty_makes_layer_weights_equal(model, tmp_path):
    examples, differences = EXAMPLES["pos"], {}
    for l2 in (0.0, 1000.0):
        settings = tiny_settings(epochs=15, l2=l2)
        trained = train_task(
            TASKS["pos"], examples, examples, tmp_path / str(l2), settings=settings, model=model
        )
        (weights,) = trained.head.features.layer_weights().values()
        differences[l2] = max(weights) - min(weights)
    assert differences[0.0] > 0.2
    assert differences[1000.0] < 0.05


def test_weight_decay_keeps_weights_small(tmp_path):
    examples, norms = EXAMPLES["pos"], []
    for decay in (0.0, 20.0):
        settings = tiny_settings(elmo="none", epochs=5, weight_decay=decay)
        out = tmp_path / str(decay)
        trained = train_task(TASKS["pos"], examples, examples, out, settings=settings)
        norms.append(trained.head.encoder.forward_lstms[0].weight_hh_l0.norm())
    assert norms[1] < 0.5 * norms[0]


def test_layers_of_training_text_are_normalized_with_or_without_sentence_splitting(model, tmp_path):
    examples = EXAMPLES["pos"]
    for by_sentence in (True, False):
        settings = tiny_settings(epochs=1, by_sentence=by_sentence)
        out = tmp_path / str(by_sentence)
        trained = train_task(TASKS["pos"], examples, examples, out, settings=settings, model=model)
        features = trained.head.features
        assert features.frozen.preprocess.by_sentence == by_sentence
        batch = features([example.words for example in examples])
        means = batch.layers[:, batch.mask].mean(1)
        torch.testing.assert_close(means, torch.zeros_like(means), atol=0.01, rtol=0)


def test_a_run_with_fewer_labels_is_refused(tmp_path, monkeypatch):
    """As an older version may have had; its examples and settings are the same."""
    examples, settings = EXAMPLES["ner"], tiny_settings(elmo="none", epochs=2)
    fewer = replace(TASKS["ner"], labels=lambda _: ["O", "S-LOC"])
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "close", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train_task(fewer, examples, examples, tmp_path, settings=settings)
    with pytest.raises(InputError, match="was started with other labels, by an older version"):
        train_task(TASKS["ner"], examples, examples, tmp_path, settings=settings)


def test_another_seed_gives_another_head(tmp_path):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    for seed in (0, 1):
        settings = tiny_settings(elmo="none", seed=seed)
        train_task(task, examples, examples, tmp_path / str(seed), settings=settings)
    assert weights_of(tmp_path / "0") != weights_of(tmp_path / "1")


def test_training_stops_when_the_patience_is_used_up(tmp_path):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    settings = tiny_settings(
        elmo="none", epochs=50, patience=2, learning_rate=1e-9, character_filters=0
    )
    train_task(task, examples, examples, tmp_path, settings=settings)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 3


# A label that no example has, and how messages show it.
UNSEEN = {
    "ner": ("S-X", "X"), "chunking": ("S-X", "X"), "pos": ("X", "X"), "srl": ("B-X", "B-X"),
    "sentiment": ("X", "X"), "entailment": ("X", "X"),
}  # fmt: skip


def _relabelled(example, label):
    if isinstance(example, LabelledText):
        return replace(example, label=label, phrases=())
    if isinstance(example, TextPair):
        return replace(example, label=label)
    return replace(example, tags=(label,) * len(example.words))


@pytest.mark.parametrize("name", UNSEEN)
def test_labels_without_training_examples_are_reported_and_never_predicted(name, tmp_path):
    task, examples = TASKS[name], EXAMPLES[name]
    label, shown = UNSEEN[name]
    other = [_relabelled(example, label) for example in examples]
    settings, lines = tiny_settings(elmo="none", epochs=1), []
    trained = train_task(
        task, examples, [*examples, *other], tmp_path, settings=settings, log=lines.append
    )
    assert lines[1].endswith(f"that no training example has: {shown}")
    assert next(iter(trained.evaluate(other).values())) == 0
    with pytest.raises(InputError, match=f"labelled {shown}, the training .*of one task"):
        train_task(task, examples, other, tmp_path / "other", settings=settings)


@pytest.mark.full
@pytest.mark.parametrize("name", TASKS)
def test_predictions_do_not_depend_on_the_batch_however_long(name, model, tmp_path):
    examples = [example_of_length(name, words) for words in (1000, 1)]
    settings = tiny_settings(epochs=1, words_per_batch=1, hidden_size=4)
    trained = train_task(TASKS[name], examples, examples, tmp_path, settings=settings, model=model)
    together = trained.predict_examples(examples)
    assert [trained.predict_examples([example])[0] for example in examples] == together
    if name in ("ner", "chunking", "pos"):
        assert [*map(len, together)] == [1000, 1]


@pytest.mark.parametrize("name", ["entailment", "qa", "coreference"])
def test_a_text_too_long_for_memory_is_refused_before_training(name, tmp_path):
    examples, settings = EXAMPLES[name], tiny_settings(elmo="none", epochs=1)
    assert TASKS[name].max_words is not None
    task = replace(TASKS[name], max_words=99)
    trained = train_task(task, examples, examples, tmp_path / "short", settings=settings)
    longer = [*examples, example_of_length(name, 110)]
    message = r"1[01]\d words that begin .*at most 99; cut the text in parts"
    with pytest.raises(InputError, match=message):
        replace(trained, task=task).predict_examples(longer)
    with pytest.raises(InputError, match=message):
        train_task(task, examples, longer, tmp_path / "long", settings=settings)
    assert not (tmp_path / "long").exists()


def test_scores_of_an_answer_do_not_depend_on_padding(tmp_path):
    """A context of one word attends to nothing, padding included."""
    examples = [*EXAMPLES["qa"][:3], example_of_length("qa", 1)]
    settings = tiny_settings(elmo="none", epochs=1)
    trained = train_task(TASKS["qa"], examples, examples, tmp_path, settings=settings)
    with torch.no_grad():
        together, alone = (trained.head._scores(batch)[0] for batch in (examples, examples[-1:]))
    torch.testing.assert_close(together[-1, :1], alone[0])


def test_word_vectors_of_a_file_initialize_the_embeddings(tmp_path):
    file = tmp_path / "vectors.txt"
    numbers = (number * 8 for number in ("1 ", "2 ", "3 "))
    file.write_text("3 8\nCat {}\nwombat {}\n. . . {}\n".format(*numbers))
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    settings = tiny_settings(elmo="none", word_vectors=str(file), freeze_word_vectors=True)
    trained = train_task(task, examples, examples, tmp_path / "out", settings=settings)
    features = trained.head.features
    rows = features.vocabulary.rows([("CAT", "Wombat", "never")])[0]
    assert features.word_embedding.weight[rows[0]].tolist() == [1] * 8
    assert (
        len(features.word_embedding.weight) == features.vocabulary.num_trained == rows[1]
    )  # no wombat in training
    vectors = features([("Wombat", "cat", "never")]).vectors[0, :, :8]
    assert vectors[:2].tolist() == [[2] * 8, [1] * 8]
    assert torch.equal(vectors[2], features.word_embedding.weight[1])
    with pytest.raises(InputError, match="vectors of 8 numbers, but word_embedding_size is 9; set"):
        train_task(
            task,
            examples,
            examples,
            tmp_path / "b",
            settings=tiny_settings(elmo="none", word_vectors=str(file), word_embedding_size=9),
        )
    file.write_text("\ufeffcat 1 2 3 4 5 6 7 8\n", "utf-8")
    assert read_word_vectors(file, 8)[0] == ["cat"]
    file.write_text("cat 1 2 3 4 5 6 7 8\nwombat 1 2 3 4 5 6 7 nan\n")
    with pytest.raises(FormatError, match=r"vectors.txt, line 2: a vector that is not finite"):
        train_task(task, examples, examples, tmp_path / "b", settings=settings)
    file.write_text("cat 1 2 3 4 5 6 7 8\ndog 1\n")
    with pytest.raises(FormatError, match=r"vectors.txt, line 2: 1 numbers, expected 8"):
        train_task(task, examples, examples, tmp_path / "b", settings=settings)


def test_other_examples_or_settings_are_refused(tmp_path):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    settings = tiny_settings(elmo="none")
    train_task(task, examples, examples, tmp_path, settings=settings)
    with pytest.raises(InputError, match="was started with other examples, or by a version that"):
        train_task(task, examples[1:], examples, tmp_path, settings=settings)
    with pytest.raises(InputError, match="was started with hidden_size 12, now 3; resume with the"):
        train_task(
            task, examples, examples, tmp_path, settings=tiny_settings(elmo="none", hidden_size=3)
        )
    with (
        DirectoryLock(tmp_path, ""),
        pytest.raises(InputError, match="another process is writing it"),
    ):
        train_task(task, examples, examples, tmp_path, settings=settings)
    with pytest.raises(InputError, match="elmo is 'input', but no biLM is given"):
        train_task(task, examples, examples, tmp_path, settings=tiny_settings())


def test_a_run_is_not_resumed_with_another_bilm(model, tmp_path):
    task, examples, settings = TASKS["pos"], EXAMPLES["pos"], tiny_settings(epochs=1)
    train_task(task, examples, examples, tmp_path / "run", settings=settings, model=model)
    (tmp_path / "other").mkdir()
    other = elmokit.load(make_folder(tmp_path / "other", size=0.5))
    with pytest.raises(InputError, match="was started with another biLM"):
        train_task(task, examples, examples, tmp_path / "run", settings=settings, model=other)


def test_impossible_runs_are_refused(model, tmp_path):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    for parts in ([examples, []], [[], examples]):
        with pytest.raises(InputError, match="needs examples to train on"):
            train_task(task, *parts, tmp_path, settings=tiny_settings(elmo="none"))
    carrying = elmokit.Embedder(model.pretrained, elmokit.LoadOptions(state="carry"))
    with pytest.raises(InputError, match="state is 'carry', expected 'zero'"):
        train_task(task, examples, examples, tmp_path, settings=tiny_settings(), model=carrying)
    for finetune in (False, True):
        settings = tiny_settings(layers=(0, 3), finetune=finetune)
        with pytest.raises(ConfigError, match=r"layers is \(0, 3\), expected some of 0 to 2"):
            train_task(task, examples, examples, tmp_path, settings=settings, model=model)


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    with pytest.raises(NumericError, match=r"epoch \d: the loss is .*smaller learning_rate"):
        train_task(
            task,
            examples,
            examples,
            tmp_path,
            settings=tiny_settings(elmo="none", learning_rate=1e30, epochs=9, patience=0),
        )


def test_a_gradient_that_is_not_finite_ends_the_run(tmp_path, monkeypatch):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(float("inf")))
    with pytest.raises(NumericError, match=r"epoch 1: the loss is \d.*, the gradient norm inf"):
        train_task(task, examples, examples, tmp_path, settings=tiny_settings(elmo="none"))


def test_the_normalizer_is_fitted_to_a_sample_of_limited_size(monkeypatch):
    texts = [(str(number),) * 30 for number in range(9)]
    sample = trainer._sample(texts, 0)
    assert sorted(sample) == texts
    monkeypatch.setattr(trainer, "_NORMALIZER_WORDS", 100)
    assert trainer._sample(texts, 0) == sample[:3]
    monkeypatch.setattr(trainer, "_NORMALIZER_WORDS", 10)
    assert trainer._sample(texts, 0) == sample[:1]


def train_with_full_disk(model, folder, messages):
    """Train where a head can be written, but not a biLM."""
    torch.set_num_threads(1)  # the threads of the forked process are gone
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    examples = EXAMPLES["pos"]
    try:
        train_task(TASKS["pos"], examples, examples, folder, settings=tiny_settings(), model=model)
    except OutputError as error:
        messages.put(str(error))


def test_a_full_disk_is_one_clear_line(tmp_path):
    model = elmokit.load(make_folder(tmp_path, dim=200, projection_dim=20))
    context = multiprocessing.get_context("fork")
    messages = context.Queue()
    process = context.Process(target=train_with_full_disk, args=(model, tmp_path / "out", messages))
    process.start()
    assert re.fullmatch(r".*: cannot be written \([^()]*[Tt]oo large.*\)", messages.get(timeout=60))
    process.join()


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="hidden_size is 0, expected more than 0"):
        TaskSettings(hidden_size=0)
    with pytest.raises(ConfigError, match=r"dropout is 1.0, expected 0 to below 1"):
        TaskSettings(dropout=1.0)
    with pytest.raises(ConfigError, match="character_filters cannot both be 0"):
        TaskSettings(elmo="none", word_embedding_size=0, character_filters=0)
    with pytest.raises(ConfigError, match="no word_vectors are given"):
        TaskSettings(freeze_word_vectors=True)
    with pytest.raises(ConfigError, match="seed is 9223372036854775808"):
        TaskSettings(seed=2**63)
    for values in ({"finetune": True}, {"layers": (2,)}):
        with pytest.raises(ConfigError, match="elmo is 'none': there are no layers"):
            TaskSettings(elmo="none", **values)
    with pytest.raises(ConfigError, match=r"layers is \(0, 0\), expected each once"):
        TaskSettings(layers=(0, 0))


def test_damaged_and_other_folders_are_refused(tmp_path, model):
    with pytest.raises(FormatError, match=r"no task.json; expected a folder that elmo train made"):
        load_task(tmp_path)
    examples = EXAMPLES["pos"]
    train_task(TASKS["pos"], examples, examples, tmp_path, settings=tiny_settings(), model=model)
    record = json.loads((tmp_path / "task.json").read_text())
    (tmp_path / "task.json").write_text(json.dumps(record | {"elmo": "0" * 64}))
    with pytest.raises(FormatError, match="was trained with another biLM"):
        load_task(tmp_path)
    for wrong in ({"labels": ["A"]}, {"settings": record["settings"] | {"hidden_size": 10**6}}):
        (tmp_path / "task.json").write_text(json.dumps(record | wrong))
        with pytest.raises(FormatError, match=r"has the shape .*is it the file of this model"):
            load_task(tmp_path)
    for wrong, message in (
        ({"elmo": None}, "elmo is None, but the settings say 'input'"),
        (
            {"settings": record["settings"] | {"hidden_size": 10**9}},
            "hidden_size is 1000000000, expected at most 1048576",
        ),
        ({"num_trained": 1}, "num_trained is 1, expected 2 to "),
        ({"num_trained": 10**6}, "num_trained is 1000000, expected 2 to "),
        ({"labels": ["A", "A"]}, "a label is empty or there twice"),
        ({"labels": ["A", ""]}, "a label is empty or there twice"),
    ):
        (tmp_path / "task.json").write_text(json.dumps(record | wrong))
        with pytest.raises(FormatError, match=message):
            load_task(tmp_path)
    (tmp_path / "task.json").write_text(json.dumps(record))
    for junk in (b"x", b"junk", b"hello world\n", b"\x80\x02]q\x00."):
        (tmp_path / "checkpoint.pt").write_bytes(junk)
        with pytest.raises(FormatError, match="not a checkpoint of elmokit"):
            train_task(
                TASKS["pos"], examples, examples, tmp_path, settings=tiny_settings(), model=model
            )


def test_training_leaves_the_callers_random_state_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    examples = EXAMPLES["pos"]
    train_task(TASKS["pos"], examples, examples, tmp_path, settings=tiny_settings(elmo="none"))
    assert torch.rand(1) == expected


def test_cached_layers_must_fit_the_settings_and_the_bilm(model, tmp_path):
    task, examples, layers = TASKS["pos"], EXAMPLES["pos"], CachedLayers(model)
    options = {"settings": tiny_settings(), "model": model}
    computed = train_task(task, examples, examples, tmp_path / "a", **options)
    cached = train_task(task, examples, examples, tmp_path / "b", **options, layers=layers)
    assert weights_of(tmp_path / "a") == weights_of(tmp_path / "b")
    assert computed.scores == cached.scores
    options["settings"] = tiny_settings(layers=(2,))
    with pytest.raises(ConfigError, match=r"cache holds layers \(0, 1, 2\), but .* \(2,\)"):
        train_task(task, examples, examples, tmp_path / "c", **options, layers=layers)
    (tmp_path / "other").mkdir()
    layers = CachedLayers(elmokit.load(make_folder(tmp_path / "other", size=0.5)), (2,))
    with pytest.raises(ConfigError, match="layers are of another biLM than the one given"):
        train_task(task, examples, examples, tmp_path / "c", **options, layers=layers)


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "elmo").mkdir()
    examples = EXAMPLES["pos"]
    with pytest.raises(OutputError, match="holds elmo, but no checkpoint of a run; name a new"):
        train_task(TASKS["pos"], examples, examples, tmp_path, settings=tiny_settings(elmo="none"))


def test_a_run_killed_while_saving_its_first_head_can_be_restarted(tmp_path, monkeypatch):
    """With other settings, too."""
    examples = EXAMPLES["pos"]

    def run(**settings):
        return train_task(
            TASKS["pos"], examples, examples, tmp_path, settings=tiny_settings(**settings)
        )

    def killed(*_):
        (tmp_path / "head-1.safetensors").write_bytes(b"x")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(trainer, "save_task", killed)
        with pytest.raises(KeyboardInterrupt):
            run(elmo="none")
    restarted = run(elmo="none", seed=3)
    assert restarted.epoch
    (tmp_path / "checkpoint.pt").unlink()
    with pytest.raises(OutputError, match="but no checkpoint of a run"):
        run(elmo="none", seed=3)


@pytest.mark.parametrize(
    ("finetune", "unwritten"),
    [(True, "elmo"), (True, "head"), (True, "task.json"), (False, "head"), (False, "task.json")],
)
def test_a_run_killed_while_saving_keeps_the_previous_head(
    finetune, unwritten, model, tmp_path, monkeypatch
):
    examples, settings = EXAMPLES["pos"], tiny_settings(elmo="input", finetune=finetune, epochs=3)
    rising_score, best = count(1), []
    task = replace(TASKS["pos"], score=lambda *_: {"accuracy": next(rising_score)})

    def interrupted(write, position):
        def written(*arguments):
            if arguments[position].name.startswith(unwritten):
                raise KeyboardInterrupt
            write(*arguments)

        return written

    def save(trained, *rest):
        if best:
            monkeypatch.setattr(saved_model, "write_atomically", interrupted(write_atomically, 0))
            monkeypatch.setattr(atomic, "rename_atomically", interrupted(rename_atomically, 1))
        saved_model.save_task(trained, *rest)
        best.append(copy.deepcopy(trained.head.state_dict()))

    monkeypatch.setattr(trainer, "save_task", save)
    options = {"settings": settings, "model": model}
    with pytest.raises(KeyboardInterrupt):
        train_task(task, examples, examples, tmp_path, **options)
    loaded = load_task(tmp_path, tasks={"pos": task})
    assert loaded.epoch == 1
    for name, tensor in loaded.head.state_dict().items():
        torch.testing.assert_close(tensor, best[0][name])
    monkeypatch.undo()
    assert train_task(task, examples, examples, tmp_path, **options).epoch == 3
    assert len([*tmp_path.glob("head-*")]) == len([*tmp_path.glob("elmo*")]) == 1
