"""Training runs: what they learn, report and save, and how they resume."""

import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import elmokit
from elmokit.atomic import DirectoryLock
from elmokit.errors import ConfigError, FormatError, InputError, NumericError, OutputError
from elmokit.pretrain import trainer as training
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.init_from import copy_weights
from elmokit.pretrain.run_dir import RunDirectory
from elmokit.pretrain.settings import PretrainingSettings, names_of_0_1
from elmokit.pretrain.trainer import Trainer, pretrain
from random_models import make_corpus

TINY = PretrainingSettings(
    projection_size=8,
    cell_size=12,
    filters=((1, 6), (2, 6)),
    max_characters=12,
    character_embedding_size=4,
    batch_size=4,
    sequence_length=5,
    num_sampled=6,
    steps=24,
    validation_interval=8,
    log_interval=4,
    optimizer="adamw",
    learning_rate=0.02,
    dropout=0.2,
    warmup_steps=3,
    schedule="cosine",
    checkpoint_minutes=0.0,
)
SENTENCES = [
    f"the {color} {animal} sat on the {color} mat .".split()
    for color in ("red", "blue")
    for animal in ("cat", "dog", "owl")
] * 4


def changed(**changes):
    return PretrainingSettings(**{**vars(TINY), **changes})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return Corpus.open(make_corpus(folder, SENTENCES, valid=SENTENCES[:6], shards=2))


def weights_of(folder):
    return (folder / "model" / "model.safetensors").read_bytes()


def test_a_run_saves_a_model_that_predicts_its_text(corpus, tmp_path):
    lines = []
    validation = pretrain(
        corpus, changed(steps=80, dropout=0.0), tmp_path / "run", report=lines.append
    )
    assert validation.zero.geometric_mean < len(corpus.vocabulary) / 2
    model = elmokit.load(tmp_path / "run")
    assert model.embed([["the", "red", "owl"]])[0].shape == (3, 3, 16)
    assert "Pretrained by elmokit" in model.pretrained.card
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [r["update"] for r in log if "sampled_loss" in r] == list(range(4, 81, 4))
    assert [r["update"] for r in log if "perplexity" in r] == list(range(8, 81, 8))
    assert log[-1]["perplexity_of_best"]["zero"]["forward"] == validation.zero.forward
    assert set(log[1]["sampled_loss"]) == {"forward", "backward"}
    assert any("sampled loss" in line and "tokens/s" in line for line in lines)
    assert any("full softmax" in line and "carried state" in line for line in lines)


@pytest.mark.parametrize(
    "shape",
    [
        {"input": "words", "directions": "forward"},
        {
            "input": "characters", "max_characters": 10, "activation": "tanh", "highway_layers": 1,
            "character_embedding_size": 4, "filters": ((1, 8), (2, 8), (3, 16), (4, 32), (5, 64)),
        },
        {"input": "words", "tie_weights": True},
        {"input": "words", "skip_connections": True},
    ],
    ids=["unidirectional words", "characters", "shared softmax", "skip connections"],
)  # fmt: skip
def test_five_sentences_are_learned_as_by_bilm_tf(shape, shared, tmp_path):
    golden = shared / "golden" / "bilm-tf" / "train"
    sentences = [line.split() for line in (golden / "data.txt").read_text().splitlines()]
    vocabulary = (golden / "vocab.txt").read_text().split()
    folder = make_corpus(tmp_path / "five", sentences, vocabulary=vocabulary, valid=sentences)
    settings = {
        "projection_size": 8,
        "cell_size": 16,
        "skip_connections": False,
        "cell_clip": 0.0,
        "projection_clip": 0.0,
        "batch_size": 2,
        "sequence_length": 10,
        "steps": 300,
        "num_sampled": 16,
        "dropout": 0.1,
        "max_grad_norm": 1.0,
        "validation_interval": 0,
        "log_interval": 1000,
    }
    validation = pretrain(
        Corpus.open(folder), PretrainingSettings(**{**settings, **shape}), tmp_path / "run"
    )
    assert validation.zero.geometric_mean < 20
    assert validation.carry.geometric_mean < 20


def test_without_resets_the_state_is_carried_from_step_to_step(corpus):
    never, always = (
        Trainer(corpus, changed(reset_probability=reset, dropout=0.0)) for reset in (0.0, 1.0)
    )
    losses = [[trainer.train_step().losses for _ in range(3)] for trainer in (never, always)]
    assert losses[0][0] == losses[1][0]  # sentences are longer than a window: all start from zero
    assert losses[0][2] != losses[1][2]


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    pretrain(corpus, TINY, folder)
    return folder


def run_of(directory):
    """All that a finished run has: weights, checkpoint, and the steps in its log."""
    checkpoint = torch.load(directory / "checkpoint.pt", weights_only=True)
    log = (directory / "log.jsonl").read_text().splitlines()
    return (
        weights_of(directory),
        {name: weight.tolist() for name, weight in checkpoint["weights"].items()},
        [json.loads(line)["update"] for line in log],
    )


def train_slowly(corpus, directory):
    """A run that waits, so that it can be killed, after each step from the 10th on."""
    train_step = Trainer.train_step

    def train_step_and_wait(trainer):
        if trainer.step >= 10:
            time.sleep(0.5)
        return train_step(trainer)

    Trainer.train_step = train_step_and_wait
    pretrain(corpus, TINY, directory)


def test_a_killed_run_ends_with_the_same_weights(corpus, uninterrupted, tmp_path):
    process = multiprocessing.get_context("fork").Process(
        target=train_slowly, args=(corpus, tmp_path)
    )
    process.start()
    log = tmp_path / "log.jsonl"
    while not (log.exists() and '"update": 8' in log.read_text()):
        assert process.is_alive(), "ended before it could be killed"
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    pretrain(corpus, TINY, tmp_path)
    assert run_of(tmp_path) == run_of(uninterrupted)


@pytest.mark.parametrize("failing", range(0, 30, 3))
def test_a_run_that_fails_at_any_write_ends_with_the_same_weights(
    corpus, uninterrupted, tmp_path, monkeypatch, failing
):
    """Fails before or after the n-th rename, as a kill there would."""
    renames = 0

    def rename_or_fail(*paths):
        nonlocal renames
        renames += 1
        if renames == failing // 2 + 1:
            if failing % 2:
                rename(*paths)
            raise KeyboardInterrupt
        return rename(*paths)

    rename = Path.replace
    monkeypatch.setattr(Path, "replace", rename_or_fail)
    with pytest.raises(KeyboardInterrupt):
        pretrain(corpus, TINY, tmp_path)
    pretrain(corpus, TINY, tmp_path)
    assert run_of(tmp_path) == run_of(uninterrupted)


def test_a_checkpoint_of_0_1_is_resumed(corpus, uninterrupted, tmp_path):
    def report(line):
        if line.startswith("step 12"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(corpus, TINY, tmp_path, report=report)
    stored = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    old_names = {
        "step": "update", "hidden": "output", "cell": "memory", "best_score": "best",
        "best_step": "best_update", "initial_card": "begun_with",
    }  # fmt: skip
    stored = {old_names.get(name, name): value for name, value in stored.items()}
    old_names = {"remaining": "left", "last_ids": "read"}
    stored["positions"] = [
        {old_names.get(name, name): value for name, value in position.items()}
        for position in stored["positions"]
    ]
    settings = names_of_0_1({f.name: getattr(TINY, f.name) for f in fields(TINY)})
    stored["settings"] = "".join(f"{n} = {json.dumps(v)}\n" for n, v in settings.items())
    torch.save(stored, tmp_path / "checkpoint.pt")
    pretrain(corpus, TINY, tmp_path)
    assert run_of(tmp_path) == run_of(uninterrupted)


def test_a_finished_run_continues_when_more_steps_are_asked_for(corpus, tmp_path):
    constant = {"schedule": "constant", "validation_interval": 4}
    pretrain(corpus, changed(steps=16, **constant), tmp_path / "at_once")
    pretrain(corpus, changed(steps=8, **constant), tmp_path / "in_two")
    lines = []
    longer = changed(steps=16, **constant)
    validation = pretrain(corpus, longer, tmp_path / "in_two", report=lines.append)
    assert lines[0] == "resuming after step 8 of 16"
    assert validation is not None
    assert run_of(tmp_path / "in_two")[:2] == run_of(tmp_path / "at_once")[:2]
    assert "steps = 16" in (tmp_path / "in_two" / "settings.toml").read_text()
    with pytest.raises(InputError, match=r"has done 16 steps, more than the 8 that"):
        pretrain(corpus, changed(steps=8, **constant), tmp_path / "in_two")


def test_intervals_and_threads_may_change_when_a_run_is_resumed(corpus, tmp_path):
    pretrain(corpus, changed(steps=8), tmp_path)
    pretrain(corpus, changed(steps=9, validation_interval=3, log_interval=1, threads=1), tmp_path)
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 9


def test_a_run_without_a_model_says_so(corpus, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pretrain(corpus, changed(validation_interval=0), tmp_path, report=interrupt)
    with pytest.raises(FormatError, match=r"run has not saved a model yet.*validation_interval"):
        elmokit.load(tmp_path)


def test_a_line_a_minute_is_reported_between_those_of_the_log(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("elmokit.pretrain.trainer._SECONDS_BETWEEN_LINES", 0.0)
    lines = []
    pretrain(corpus, changed(steps=3, log_interval=100), tmp_path, report=lines.append)
    assert lines[:2] == ["step 1 of 3", "step 2 of 3"]


def test_a_finished_run_is_left_as_it_is(corpus, uninterrupted):
    before, log = weights_of(uninterrupted), (uninterrupted / "log.jsonl").read_bytes()
    with open(uninterrupted / "log.jsonl", "ab") as file:
        file.write(b"\0\0\0\n{")  # as a loss of power may leave it
    assert pretrain(corpus, TINY, uninterrupted) is None
    assert weights_of(uninterrupted) == before
    assert (uninterrupted / "log.jsonl").read_bytes() == log


def test_another_corpus_or_other_settings_are_refused(corpus, uninterrupted, tmp_path):
    with pytest.raises(InputError, match=r"batch_size 4 → 8.*another --out"):
        pretrain(corpus, changed(batch_size=8), uninterrupted)
    assert "batch_size = 4" in (uninterrupted / "settings.toml").read_text()
    other = make_corpus(tmp_path / "other", SENTENCES)
    record = json.loads((other / "corpus.json").read_text()) | {"fingerprint": "other"}
    (other / "corpus.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="another corpus"):
        pretrain(Corpus.open(other), TINY, uninterrupted)


def test_a_model_without_a_checkpoint_is_not_overwritten(corpus, uninterrupted, tmp_path):
    """Of another run, or of this one, whose checkpoint was removed when it had ended."""
    folder = shutil.copytree(uninterrupted, tmp_path / "run")
    (folder / "checkpoint.pt").unlink()
    with pytest.raises(OutputError, match=r"holds a model, but no checkpoint of its run; give"):
        pretrain(corpus, TINY, folder)
    assert weights_of(folder) == weights_of(uninterrupted)


def test_a_run_without_a_step_may_start_with_other_settings(corpus, uninterrupted, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pretrain(corpus, changed(seed=5, checkpoint_minutes=60.0), tmp_path, report=interrupt)
    before = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert before["step"] == 0
    pretrain(corpus, TINY, tmp_path)
    assert weights_of(tmp_path) == weights_of(uninterrupted)


def interrupt(line):
    raise KeyboardInterrupt


def test_a_file_that_is_no_checkpoint_is_named(corpus, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"nonsense")
    with pytest.raises(FormatError, match="not a checkpoint of elmokit"):
        pretrain(corpus, TINY, tmp_path)


def fill_the_disk(corpus, folder, box):
    """A run of which no file may be larger than a little."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = (folder / "checkpoint.pt").stat().st_size // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        pretrain(corpus, TINY, folder)
    except OutputError as error:
        box.put(str(error))


def test_a_full_disk_does_not_harm_the_last_checkpoint(
    corpus, uninterrupted, tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    monkeypatch.setattr(Trainer, "finished", property(lambda trainer: trainer.step >= 10))
    pretrain(corpus, TINY, folder)
    before = (folder / "checkpoint.pt").read_bytes()
    monkeypatch.undo()
    context = multiprocessing.get_context("fork")
    box = context.Queue()
    process = context.Process(target=fill_the_disk, args=(corpus, folder, box))
    process.start()
    assert "cannot be written" in box.get(timeout=60)
    process.join()
    assert (folder / "checkpoint.pt").read_bytes() == before
    pretrain(corpus, TINY, folder)
    assert weights_of(folder) == weights_of(uninterrupted)


def test_a_directory_that_cannot_be_created_is_named(corpus, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        pretrain(corpus, TINY, tmp_path / "file" / "run")


def test_patience_ends_a_run_without_improvement(corpus, tmp_path):
    lines = []
    settings = changed(
        steps=400, learning_rate=1e-12, warmup_steps=0, patience=2, validation_interval=4
    )
    pretrain(corpus, settings, tmp_path / "run", report=lines.append)
    last = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert last["step"] < 400
    assert last["step"] == last["best_step"] + 8


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_text(corpus):
    trainer = Trainer(corpus, changed(input="words"))
    trainer.train_step()
    with torch.no_grad():
        trainer.model.bilm.encoder.embedding.weight[1 + corpus.lexicon.index("owl")] = float("nan")
    with pytest.raises(NumericError, match=r"step \d+.*row \d.*owl.*learning_rate"):
        [trainer.train_step() for _ in range(8)]


def rows_named(trainer):
    """The rows of the batch that the error names with their texts, and the message."""
    with pytest.raises(NumericError) as caught:
        [trainer.train_step() for _ in range(8)]
    assert trainer._state.cell.isfinite().all()
    message = str(caught.value)
    return dict(re.findall(r"row (\d) of the batch was '([^']*)'", message)), message


def test_rows_with_a_finite_state_are_named_too(corpus):
    """The loss of a word with probability zero is infinite, but the state is not affected."""
    trainer = Trainer(corpus, changed(softmax="full", directions="forward"))
    stream, owl = trainer._open_stream("forward"), corpus.lexicon.index("owl")
    with torch.no_grad():
        trainer.model.softmax.bias[owl] = -float("inf")
    texts, message = rows_named(trainer)
    window = [stream.next_window() for _ in range(trainer.step + 1)][-1]
    with_owl = (window.targets == owl).any(1).nonzero()[0].tolist()
    assert "the forward loss is inf" in message
    assert [int(row) for row in texts] == with_owl[:3] != []
    assert all("owl" in text for text in texts.values())


def test_of_many_rows_a_few_are_named(corpus):
    trainer = Trainer(corpus, changed(softmax="full", directions="forward"))
    with torch.no_grad():
        trainer.model.softmax.weight.fill_(float("nan"))
    texts, message = rows_named(trainer)
    assert [*texts] == ["0", "1", "2"]
    assert ", and 1 rows more; start another run from the best model so far" in message


def test_gradients_that_are_not_finite_leave_the_weights_alone(corpus, monkeypatch):
    trainer = Trainer(corpus, TINY)
    trainer.train_step()
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    monkeypatch.setattr(
        "elmokit.pretrain.trainer.clip_gradients", lambda parameters, max_norm: float("inf")
    )
    with pytest.raises(NumericError, match="gradients are not finite"):
        trainer.train_step()
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(weight, before[name])


def test_cutoffs_beyond_the_vocabulary_are_refused(corpus):
    with pytest.raises(ConfigError, match="only 13 words to predict"):
        Trainer(corpus, changed(projection_size=16, cell_size=16, softmax="adaptive"))


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
    (tmp_path / "killed").mkdir()
    RunDirectory(tmp_path / "killed", writes=True).save_checkpoint(trainer.checkpoint())
    pretrain(corpus, settings, tmp_path / "killed", init_from=source)
    assert weights_of(tmp_path / "killed") == weights_of(tmp_path / "uninterrupted")
    for name in ("killed", "uninterrupted"):
        card = elmokit.load(tmp_path / name).pretrained.card
        assert f"8 steps of {trainer.words_per_step} words" in card
        past = card.split("started from the weights of another model")[1]
        assert f"24 steps of {trainer.words_per_step} words" in past


def test_the_final_validation_is_of_the_best_model(corpus, tmp_path):
    settings = changed(steps=16, validation_interval=8, learning_rate=0.02, schedule="constant")
    folder = tmp_path / "run"

    class Diverging(Trainer):
        def train_step(self):
            result = super().train_step()
            if self.step > 8:
                with torch.no_grad():
                    self.model.softmax.bias.normal_(std=9.0)
            return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "Trainer", Diverging)
        final = pretrain(corpus, settings, folder)
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    first, last = (r["perplexity"]["zero"]["forward"] for r in log if "perplexity" in r)
    assert final.zero.forward == pytest.approx(first)
    assert last > first


def test_skip_epochs_starts_further_on_in_the_text(corpus):
    whole = Trainer(corpus, changed(batch_size=1, sequence_length=1, shuffle="none"))
    later = Trainer(
        corpus, changed(batch_size=1, sequence_length=1, shuffle="none", skip_epochs=0.5)
    )
    half = (corpus.words + corpus.sentences) // 2
    targets = [int(whole._streams[0].next_window().targets[0, 0]) for _ in range(2 * half)]
    start = next(i for i in range(half, 2 * half) if targets[i - 1] == 1)
    ids = [int(later._streams[0].next_window().targets[0, 0]) for _ in range(half // 2)]
    assert ids == targets[start : start + half // 2]
    assert later.epoch == 0.5


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


def test_a_loss_over_the_entire_vocabulary_is_not_called_sampled(corpus, tmp_path):
    lines = []
    settings = changed(num_sampled=len(corpus.vocabulary), steps=4)
    pretrain(corpus, settings, tmp_path / "run", report=lines.append)
    assert any(": loss forward" in line for line in lines)
    assert not any("sampled" in line for line in lines)
    assert "sampled" not in (tmp_path / "run" / "log.jsonl").read_text()


@pytest.mark.parametrize("softmax", ["full", "adaptive"])
def test_full_and_adaptive_softmax_learn(corpus, tmp_path, softmax):
    settings = changed(
        projection_size=16, cell_size=16, softmax=softmax, cutoffs=(6,), steps=60, dropout=0.0
    )
    validation = pretrain(corpus, settings, tmp_path / "run")
    assert validation.zero.geometric_mean < len(corpus.vocabulary) / 2
    again = elmokit.load(tmp_path / "run").pretrained.model.softmax
    assert again.num_words == len(corpus.vocabulary)


def test_training_both_directions_in_threads_is_deterministic(corpus, monkeypatch):
    monkeypatch.setattr("elmokit.pretrain.loss._NUMBERS_FOR_THREADS", 0)
    runs = [Trainer(corpus, changed(threads=2, gradient_accumulation=2)) for _ in range(2)]
    for trainer in runs:
        for _ in range(4):
            trainer.train_step()
    first, second = (trainer.model.state_dict() for trainer in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_gradient_accumulation_averages_windows(corpus):
    still = {"learning_rate": 1e-12, "dropout": 0.0, "reset_probability": 1.0, "softmax": "full"}
    twice, once = (
        Trainer(corpus, changed(gradient_accumulation=2, **still)),
        Trainer(corpus, changed(**still)),
    )
    assert twice.words_per_step == 2 * once.words_per_step
    apart = [once.train_step().losses for _ in range(2)]
    together = twice.train_step().losses
    assert together == pytest.approx([sum(way) / 2 for way in zip(*apart, strict=True)])


def test_weights_do_not_depend_on_when_checkpoints_are_written(corpus, uninterrupted, tmp_path):
    settings = changed(checkpoint_minutes=1e9)
    pretrain(corpus, settings, tmp_path / "run")
    assert weights_of(tmp_path / "run") == weights_of(uninterrupted)


def test_a_directory_in_which_another_process_trains_is_refused(corpus, uninterrupted):
    with (
        DirectoryLock(uninterrupted, "busy"),
        pytest.raises(InputError, match="another process trains"),
    ):
        pretrain(corpus, TINY, uninterrupted)


SHORT = """
import sys
from dataclasses import replace
import torch
from elmokit.pretrain import loss
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.init_from import copy_weights
from elmokit.pretrain.run_dir import RunDirectory
from elmokit.pretrain.settings import PretrainingSettings

torch.cpu.get_capabilities = lambda: {"avx512_bf16": True}
loss._NUMBERS_FOR_THREADS = 0  # both directions are trained in threads
torch.set_num_threads(2)
settings = eval(sys.argv[2])
both = [replace(settings, precision=precision) for precision in ("float32", "bfloat16")]
runs = [Trainer(Corpus.open(sys.argv[1]), own) for own in both]
losses = [[loss for _ in range(6) for loss in trainer.train_step().losses] for trainer in runs]
apart = [abs(a / b - 1) for a, b in zip(*losses)]
assert 0 < max(apart) < 0.01, losses
"""


@pytest.mark.parametrize("softmax", ["sampled", "adaptive"])
def test_bfloat16_losses_are_close_to_float32(softmax, tmp_path):
    make_corpus(tmp_path, SENTENCES, valid=SENTENCES[:6], shards=2)
    settings = changed(softmax=softmax, dropout=0.0, cutoffs=(6,))
    # Some machines announce bfloat16 instructions that they do not have: keep to older ones.
    done = subprocess.run(
        [sys.executable, "-c", SHORT, str(tmp_path), repr(settings)],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("capabilities", [{}, {"avx512_bf16": False}])
def test_bfloat16_is_refused_without_instructions_for_it(corpus, monkeypatch, capabilities):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    with pytest.raises(ConfigError, match="bfloat16, for which this cpu has no instructions"):
        Trainer(corpus, changed(precision="bfloat16"))


def test_encoder_every_trains_the_encoder_at_some_steps_only(corpus):
    trainer = Trainer(corpus, changed(encoder_every=3))

    def is_trained(part):
        before = [weight.clone() for weight in part.parameters()]
        trainer.train_step()
        return not all(map(torch.equal, before, part.parameters()))

    assert [is_trained(trainer.model.bilm.encoder) for _ in range(7)] == [
        True,
        False,
        False,
    ] * 2 + [True]
    assert [is_trained(trainer.model.bilm.lstms) for _ in range(3)] == [True] * 3


def test_encoder_every_is_refused_for_word_embeddings():
    with pytest.raises(ConfigError, match="encoder_every is 2, but word embeddings"):
        changed(encoder_every=2, input="words")
