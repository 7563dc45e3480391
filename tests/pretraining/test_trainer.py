"""Training: what runs learn, report and refuse."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch

import elmokit
from elmokit.errors import ConfigError, NumericError
from elmokit.pretraining import trainer as training
from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.settings import PretrainingSettings
from elmokit.pretraining.trainer import Trainer, pretrain
from random_models import make_corpus
from tiny_run import SENTENCES, TINY, changed


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


@pytest.mark.full
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
    ids=["unidirectional words", "characters", "tied weights", "skip connections"],
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


def test_a_line_a_minute_is_reported_between_those_of_the_log(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("elmokit.pretraining.trainer._SECONDS_BETWEEN_LINES", 0.0)
    lines = []
    pretrain(corpus, changed(steps=3, log_interval=100), tmp_path, report=lines.append)
    assert lines[:2] == ["step 1 of 3", "step 2 of 3"]


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
    assert trainer._micro_batches[0].state.cell.isfinite().all()
    message = str(caught.value)
    return dict(re.findall(r"row (\d) of the batch was '([^']*)'", message)), message


def test_rows_with_a_finite_state_are_named_too(corpus):
    """The loss of a word with probability zero is infinite, but the state is not affected."""
    trainer = Trainer(corpus, changed(softmax="full", directions="forward"))
    stream, owl = (
        trainer._open_stream(0, trainer.settings.batch_size, "forward"),
        corpus.lexicon.index("owl"),
    )
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
        "elmokit.pretraining.trainer.clip_gradients", lambda parameters, max_norm: float("inf")
    )
    with pytest.raises(NumericError, match="gradients are not finite"):
        trainer.train_step()
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(weight, before[name])


def test_cutoffs_beyond_the_vocabulary_are_refused(corpus):
    with pytest.raises(ConfigError, match="only 13 words to predict"):
        Trainer(corpus, changed(projection_size=16, cell_size=16, softmax="adaptive"))


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
    settings = {"batch_size": 1, "sequence_length": 1, "shuffle": "none"}
    from_start = Trainer(corpus, changed(**settings))
    from_middle = Trainer(corpus, changed(**settings, skip_epochs=0.5))
    half = corpus.predictions // 2
    targets = [
        int(from_start._micro_batches[0].streams[0].next_window().targets[0, 0])
        for _ in range(2 * half)
    ]
    start = next(i for i in range(half, 2 * half) if targets[i - 1] == 1)
    ids = [
        int(from_middle._micro_batches[0].streams[0].next_window().targets[0, 0])
        for _ in range(half // 2)
    ]
    assert ids == targets[start : start + half // 2]
    assert from_middle.epoch == 0.5


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
    monkeypatch.setattr("elmokit.pretraining.gradients._NUMBERS_FOR_THREADS", 0)
    runs = [Trainer(corpus, changed(threads=2, gradient_accumulation=2)) for _ in range(2)]
    for trainer in runs:
        for _ in range(4):
            trainer.train_step()
    first, second = (trainer.model.state_dict() for trainer in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_sparse_gradients_train_as_dense_ones_do(corpus):
    runs = [
        Trainer(corpus, changed(optimizer="adagrad", gradient_accumulation=2, **gradient))
        for gradient in ({"softmax_gradient": "sparse"}, {"softmax_gradient": "dense"})
    ]
    sparse, dense = ([trainer.train_step().losses for _ in range(4)] for trainer in runs)
    assert sparse == [pytest.approx(losses) for losses in dense]


def test_gradient_accumulation_averages_windows(corpus):
    still = {"learning_rate": 1e-12, "dropout": 0.0, "reset_probability": 1.0, "softmax": "full"}
    twice, once = (
        Trainer(corpus, changed(gradient_accumulation=2, **still)),
        Trainer(corpus, changed(**still)),
    )
    assert twice.words_per_step == 2 * once.words_per_step
    separate = [once.train_step().losses for _ in range(2)]
    accumulated = twice.train_step().losses
    assert accumulated == pytest.approx([sum(losses) / 2 for losses in zip(*separate, strict=True)])


COMPARE_PRECISIONS = """
import sys
from dataclasses import replace
import torch
from elmokit.pretraining import gradients
from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.settings import PretrainingSettings
from elmokit.pretraining.trainer import Trainer

torch.cpu.get_capabilities = lambda: {"avx512_bf16": True}
gradients._NUMBERS_FOR_THREADS = 0  # both directions are trained in threads
torch.set_num_threads(2)
settings = eval(sys.argv[2])
corpus, precisions = Corpus.open(sys.argv[1]), ("float32", "bfloat16")
runs = [Trainer(corpus, replace(settings, precision=precision)) for precision in precisions]
losses = [[loss for _ in range(6) for loss in trainer.train_step().losses] for trainer in runs]
differences = [abs(a / b - 1) for a, b in zip(*losses)]
assert 0 < max(differences) < 0.01, losses
"""


@pytest.mark.full
@pytest.mark.parametrize("softmax", ["sampled", "adaptive"])
def test_bfloat16_losses_are_close_to_float32(softmax, tmp_path):
    make_corpus(tmp_path, SENTENCES, valid=SENTENCES[:6], shards=2)
    settings = changed(softmax=softmax, dropout=0.0, cutoffs=(6,))
    # Some machines announce bfloat16 instructions that they do not have: keep to older ones.
    done = subprocess.run(
        [sys.executable, "-c", COMPARE_PRECISIONS, str(tmp_path), repr(settings)],
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
