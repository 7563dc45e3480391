"""A run learns, says so honestly, and loses nothing, whatever happens to it."""

import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import pytest
import torch

import elmokit
from elmokit.atomic import DirectoryLock
from elmokit.errors import ConfigError, FormatError, InputError, NumericError, OutputError
from elmokit.pretrain import trainer
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.run import Run
from elmokit.pretrain.settings import PretrainingSettings
from elmokit.pretrain.trainer import pretrain
from made import make_corpus

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


def test_a_run_learns_and_leaves_a_model_that_loads(corpus, tmp_path):
    lines = []
    validation = pretrain(
        corpus, changed(steps=80, dropout=0.0), tmp_path / "run", tell=lines.append
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
def test_bilm_tfs_five_sentences_are_learnt(shape, shared, tmp_path):
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


def test_a_model_can_be_at_home_from_zero_only_if_lanes_start_there(corpus):
    """A lane that never starts afresh has read on from update to update."""
    never, always = (
        Run(corpus, changed(reset_probability=reset, dropout=0.0)) for reset in (0.0, 1.0)
    )
    losses = [[run.update().losses for _ in range(3)] for run in (never, always)]
    assert losses[0][0] == losses[1][0]  # sentences are longer than a window: all start from zero
    assert losses[0][2] != losses[1][2]


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    pretrain(corpus, TINY, folder)
    return folder


def train_until_killed(corpus, folder):
    pretrain(corpus, TINY, folder)


def test_a_run_killed_again_and_again_ends_with_the_same_bits(corpus, uninterrupted, tmp_path):
    context = multiprocessing.get_context("fork")
    kills = 0
    folder = tmp_path / "run"
    for attempt in range(60):
        process = context.Process(target=train_until_killed, args=(corpus, folder))
        process.start()
        process.join(0.15 + 0.05 * attempt)
        if process.exitcode == 0:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
    assert process.exitcode == 0
    assert kills >= 2
    assert weights_of(folder) == weights_of(uninterrupted)
    finished = [torch.load(f / "checkpoint.pt", weights_only=True) for f in (folder, uninterrupted)]
    for name, weight in finished[0]["weights"].items():
        assert torch.equal(weight, finished[1]["weights"][name]), name
    updates = [
        [json.loads(line)["update"] for line in (f / "log.jsonl").read_text().splitlines()]
        for f in (folder, uninterrupted)
    ]
    assert updates[0] == updates[1]


def test_a_finished_run_has_nothing_left_to_do(corpus, uninterrupted):
    before, log = weights_of(uninterrupted), (uninterrupted / "log.jsonl").read_bytes()
    with open(uninterrupted / "log.jsonl", "ab") as file:
        file.write(b"\0\0\0\n{")  # as a loss of power may leave it
    assert pretrain(corpus, TINY, uninterrupted) is None
    assert weights_of(uninterrupted) == before
    assert (uninterrupted / "log.jsonl").read_bytes() == log


def test_another_text_or_other_settings_are_refused(corpus, uninterrupted, tmp_path):
    with pytest.raises(InputError, match=r"batch_size 4 → 8.*another --out"):
        pretrain(corpus, changed(batch_size=8), uninterrupted)
    assert "batch_size = 4" in (uninterrupted / "settings.toml").read_text()
    other = make_corpus(tmp_path / "other", SENTENCES)
    record = json.loads((other / "corpus.json").read_text()) | {"fingerprint": "other"}
    (other / "corpus.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="another text"):
        pretrain(Corpus.open(other), TINY, uninterrupted)


def test_a_model_that_is_there_is_not_lost(corpus, uninterrupted, tmp_path):
    """Of another run, or of this one, whose checkpoint was removed when it had ended."""
    folder = shutil.copytree(uninterrupted, tmp_path / "run")
    (folder / "checkpoint.pt").unlink()
    with pytest.raises(OutputError, match=r"holds a model, but no checkpoint of its run; give"):
        pretrain(corpus, TINY, folder)
    assert weights_of(folder) == weights_of(uninterrupted)


def test_a_run_that_learnt_nothing_may_be_begun_otherwise(corpus, uninterrupted, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pretrain(corpus, changed(seed=5, checkpoint_minutes=60.0), tmp_path, tell=interrupt)
    before = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert before["update"] == 0
    pretrain(corpus, TINY, tmp_path)
    assert weights_of(tmp_path) == weights_of(uninterrupted)


def interrupt(line):
    raise KeyboardInterrupt


def test_a_checkpoint_of_something_else_is_one_clear_line(corpus, tmp_path):
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


def test_a_full_disk_leaves_the_last_checkpoint_whole(corpus, uninterrupted, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    monkeypatch.setattr(trainer.Run, "over", property(lambda run: run.done >= 10))
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


def test_a_folder_that_cannot_be_made_is_one_clear_line(corpus, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        pretrain(corpus, TINY, tmp_path / "file" / "run")


def test_waiting_for_a_better_validation_ends(corpus, tmp_path):
    lines = []
    settings = changed(
        steps=400, learning_rate=1e-12, warmup_steps=0, patience=2, validation_interval=4
    )
    pretrain(corpus, settings, tmp_path / "run", tell=lines.append)
    last = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert last["update"] < 400
    assert last["update"] == last["best_update"] + 8


def test_what_is_not_a_number_stops_the_run_and_names_the_text(corpus):
    run = Run(corpus, changed(input="words"))
    run.update()
    with torch.no_grad():
        run.model.bilm.encoder.embedding.weight[1 + corpus.lexicon.index("owl")] = float("nan")
    with pytest.raises(NumericError, match=r"update \d+.*lane \d.*owl.*learning_rate"):
        [run.update() for _ in range(8)]


def faulty_lanes(run):
    """What a run says of the lanes whose loss is not a number: the texts, by their lanes."""
    with pytest.raises(NumericError) as caught:
        [run.update() for _ in range(8)]
    assert run._state.cell.isfinite().all()
    told = str(caught.value)
    return dict(re.findall(r"lane (\d) was reading '([^']*)'", told)), told


def test_lanes_whose_memory_is_sound_are_named_too(corpus):
    """A word that can never be predicted: only lanes that come to it have an endless loss."""
    run = Run(corpus, changed(softmax="full", directions="forward"))
    stream, owl = run._stream("forward"), corpus.lexicon.index("owl")
    with torch.no_grad():
        run.model.softmax.bias[owl] = -float("inf")
    texts, told = faulty_lanes(run)
    window = [stream.window() for _ in range(run.done + 1)][-1]
    at_fault = (window.targets == owl).any(1).nonzero()[0].tolist()
    assert "the forward loss is inf" in told
    assert [int(lane) for lane in texts] == at_fault[:3] != []
    assert all("owl" in text for text in texts.values())


def test_of_many_lanes_at_fault_a_few_are_named(corpus):
    run = Run(corpus, changed(softmax="full", directions="forward"))
    with torch.no_grad():
        run.model.softmax.weight.fill_(float("nan"))
    texts, told = faulty_lanes(run)
    assert [*texts] == ["0", "1", "2"]
    assert ", and 1 lanes more; begin another run with the best model so far" in told


def test_gradients_that_are_not_finite_change_nothing(corpus, monkeypatch):
    run = Run(corpus, TINY)
    run.update()
    before = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    monkeypatch.setattr(
        "elmokit.pretrain.run.clip_gradients", lambda parameters, longest: float("inf")
    )
    with pytest.raises(NumericError, match="gradients are not finite"):
        run.update()
    for name, weight in run.model.state_dict().items():
        assert torch.equal(weight, before[name])


def test_classes_that_the_vocabulary_does_not_reach_are_refused(corpus):
    with pytest.raises(ConfigError, match="only 13 words to predict"):
        Run(corpus, changed(projection_size=16, cell_size=16, softmax="adaptive"))


def test_another_model_is_a_beginning(corpus, uninterrupted, tmp_path):
    source = elmokit.load(uninterrupted).pretrained
    words = ["<S>", "</S>", "<UNK>", "owl", "the", "new"]
    folder = make_corpus(tmp_path / "c", [["the", "new", "owl"]] * 9, vocabulary=words)
    run = Run(Corpus.open(folder), changed(steps=1))
    told = trainer.inherit(run.pretrained, source)
    assert "5 of 6 words" in told
    old = source.model.softmax.weight[source.vocabulary.ids(["owl", "the"])]
    assert torch.equal(run.model.softmax.weight[3:5], old)
    for name, parameter in run.model.bilm.named_parameters():
        assert torch.equal(parameter, source.model.bilm.get_parameter(name))
    with pytest.raises(InputError, match="cell_size"):
        trainer.inherit(Run(Corpus.open(folder), changed(cell_size=16)).pretrained, source)


def test_a_run_begun_with_another_model_goes_on_and_tells_of_it(corpus, uninterrupted, tmp_path):
    source, settings = elmokit.load(uninterrupted).pretrained, changed(seed=1, steps=8)
    pretrain(corpus, settings, tmp_path / "whole", init_from=source)

    run = Run(corpus, settings)
    trainer.inherit(run.pretrained, source)
    run.begun_with = source.card
    for _ in range(3):
        run.update()
    (tmp_path / "killed").mkdir()
    trainer.RunFolder(tmp_path / "killed", writes=True).save_checkpoint(run.checkpoint())
    pretrain(corpus, settings, tmp_path / "killed", init_from=source)
    assert weights_of(tmp_path / "killed") == weights_of(tmp_path / "whole")
    for name in ("killed", "whole"):
        card = elmokit.load(tmp_path / name).pretrained.card
        assert f"8 updates of {run.words_per_update} words" in card
        past = card.split("began with the weights of another model")[1]
        assert f"24 updates of {run.words_per_update} words" in past


def test_the_model_that_is_kept_is_the_one_judged_last(corpus, tmp_path):
    worse = changed(steps=16, validation_interval=8, learning_rate=0.02, schedule="constant")
    folder = tmp_path / "run"

    class Diverging(Run):
        def update(self):
            found = super().update()
            if self.done > 8:
                with torch.no_grad():
                    self.model.softmax.bias.normal_(std=9.0)
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "Run", Diverging)
        judged = pretrain(corpus, worse, folder)
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    first, last = (r["perplexity"]["zero"]["forward"] for r in log if "perplexity" in r)
    assert judged.zero.forward == pytest.approx(first)
    assert last > first


def test_a_run_can_begin_further_on_in_the_text(corpus):
    whole = Run(corpus, changed(batch_size=1, sequence_length=1, shuffle="none"))
    later = Run(corpus, changed(batch_size=1, sequence_length=1, shuffle="none", skip_epochs=0.5))
    half = (corpus.words + corpus.sentences) // 2
    targets = [int(whole._streams[0].window().targets[0, 0]) for _ in range(2 * half)]
    begins = next(place for place in range(half, 2 * half) if targets[place - 1] == 1)
    found = [int(later._streams[0].window().targets[0, 0]) for _ in range(half // 2)]
    assert found == targets[begins : begins + half // 2]
    assert later.epoch == 0.5


def test_classes_of_another_model_are_a_beginning(corpus, tmp_path):
    adaptive = {"projection_size": 16, "cell_size": 16, "softmax": "adaptive"}
    source = Run(corpus, changed(**adaptive, cutoffs=(6,))).pretrained
    words = ["<S>", "</S>", "<UNK>", "owl", "the", "new", "red", "dog"]
    folder = Corpus.open(make_corpus(tmp_path / "c", [["the", "new", "owl"]], vocabulary=words))
    run = Run(folder, changed(**adaptive, cutoffs=(5,), seed=1))
    before = {name: weight.clone() for name, weight in run.model.softmax.state_dict().items()}
    told = trainer.inherit(run.pretrained, source)

    new, old = (pretrained.model.softmax.classes for pretrained in (run.pretrained, source))
    at = dict(zip(words, source.vocabulary.ids(words).tolist(), strict=True))
    assert at["the"] < 6 <= min(at["owl"], at["dog"])  # owl is in another class now
    for word, place in (("<S>", 0), ("<UNK>", 2), ("the", 4)):
        assert torch.equal(new.head.weight[place], old.head.weight[at[word]])
        assert new.head.bias[place] == old.head.bias[at[word]]
    assert torch.equal(new.head.weight[3], before["classes.head.weight"][3])
    assert torch.equal(new.head.weight[5:], old.head.weight[6:])
    assert torch.equal(new.tail[0][0].weight, old.tail[0][0].weight)
    assert torch.equal(new.tail[0][1].weight[7 - 5], old.tail[0][1].weight[at["dog"] - 6])
    taken = sum((at[w] < 6) == (words.index(w) < 5) for w in words if w != "new")
    assert f"what was learnt of {taken} of 8 words" in told
    with pytest.raises(
        InputError, match=r"the cutoffs \(6,\), this run \(4, 6\); give this run as many"
    ):
        trainer.inherit(Run(folder, changed(**adaptive, cutoffs=(4, 6))).pretrained, source)


def test_a_loss_over_all_words_is_not_called_sampled(corpus, tmp_path):
    lines = []
    settings = changed(num_sampled=len(corpus.vocabulary), steps=4)
    pretrain(corpus, settings, tmp_path / "run", tell=lines.append)
    assert any(": loss forward" in line for line in lines)
    assert not any("sampled" in line for line in lines)
    assert "sampled" not in (tmp_path / "run" / "log.jsonl").read_text()


@pytest.mark.parametrize("softmax", ["full", "adaptive"])
def test_other_softmaxes_learn_too(corpus, tmp_path, softmax):
    settings = changed(
        projection_size=16, cell_size=16, softmax=softmax, cutoffs=(6,), steps=60, dropout=0.0
    )
    validation = pretrain(corpus, settings, tmp_path / "run")
    assert validation.zero.geometric_mean < len(corpus.vocabulary) / 2
    again = elmokit.load(tmp_path / "run").pretrained.model.softmax
    assert again.words == len(corpus.vocabulary)


def test_readers_that_learn_at_the_same_time_learn_the_same_bits(corpus, monkeypatch):
    monkeypatch.setattr("elmokit.pretrain.loss._NUMBERS_TO_LEARN_AT_ONCE", 0)
    runs = [Run(corpus, changed(threads=2, gradient_accumulation=2)) for _ in range(2)]
    for run in runs:
        for _ in range(4):
            run.update()
    first, second = (run.model.state_dict() for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_several_windows_make_one_update(corpus):
    still = {"learning_rate": 1e-12, "dropout": 0.0, "reset_probability": 1.0, "softmax": "full"}
    twice, once = (
        Run(corpus, changed(gradient_accumulation=2, **still)),
        Run(corpus, changed(**still)),
    )
    assert twice.words_per_update == 2 * once.words_per_update
    apart = [once.update().losses for _ in range(2)]
    together = twice.update().losses
    assert together == pytest.approx([sum(way) / 2 for way in zip(*apart, strict=True)])


def test_time_passes_without_changing_what_is_learnt(corpus, uninterrupted, tmp_path):
    """When checkpoints are written is a matter of the clock; the weights are not."""
    settings = changed(checkpoint_minutes=1e9)
    pretrain(corpus, settings, tmp_path / "run")
    assert weights_of(tmp_path / "run") == weights_of(uninterrupted)


def test_a_folder_in_which_another_process_trains_is_left_alone(corpus, uninterrupted):
    with (
        DirectoryLock(uninterrupted, "busy"),
        pytest.raises(InputError, match="another process trains"),
    ):
        pretrain(corpus, TINY, uninterrupted)


SHORT = """
import sys
from dataclasses import replace
import torch
from elmokit.pretrain import loss as step
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.run import Run
from elmokit.pretrain.settings import PretrainingSettings

torch.cpu.get_capabilities = lambda: {"avx512_bf16": True}
step._NUMBERS_TO_LEARN_AT_ONCE = 0  # the readers learn side by side
torch.set_num_threads(2)
settings = eval(sys.argv[2])
both = [replace(settings, precision=precision) for precision in ("float32", "bfloat16")]
runs = [Run(Corpus.open(sys.argv[1]), own) for own in both]
losses = [[loss for _ in range(6) for loss in run.update().losses] for run in runs]
apart = [abs(a / b - 1) for a, b in zip(*losses)]
assert 0 < max(apart) < 0.01, losses
"""


@pytest.mark.parametrize("softmax", ["sampled", "adaptive"])
def test_bfloat16_learns_nearly_the_same(softmax, tmp_path):
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
def test_bfloat16_is_refused_where_it_gains_nothing(corpus, monkeypatch, capabilities):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    with pytest.raises(ConfigError, match="bfloat16, which this cpu does not multiply"):
        Run(corpus, changed(precision="bfloat16"))


def test_the_encoder_learns_at_its_turn_only(corpus):
    run = Run(corpus, changed(encoder_every=3))

    def learnt(part):
        before = [weight.clone() for weight in part.parameters()]
        run.update()
        return not all(map(torch.equal, before, part.parameters()))

    assert [learnt(run.model.bilm.encoder) for _ in range(7)] == [True, False, False] * 2 + [True]
    assert [learnt(run.model.bilm.lstms) for _ in range(3)] == [True] * 3


def test_a_table_of_words_learns_at_every_update():
    with pytest.raises(ConfigError, match="encoder_every is 2, but word embeddings"):
        changed(encoder_every=2, input="words")
