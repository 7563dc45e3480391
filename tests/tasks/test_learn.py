"""Every task is learnt by the same loop, which loses nothing and refuses what cannot work."""

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
from elmokit.atomic import DirectoryLock
from elmokit.errors import ConfigError, FormatError, InputError, NumericError, OutputError
from elmokit.tasks import checkpoint, folder, plain
from elmokit.tasks import learn as story
from elmokit.tasks.catalog import TASKS
from elmokit.tasks.checkpoint import Checkpoint
from elmokit.tasks.data.example import Labelled, Pair, Tagged
from elmokit.tasks.folder import load_trained
from elmokit.tasks.layers import FrozenLayers
from elmokit.tasks.learn import learn
from elmokit.tasks.lexicon import read_vectors
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.tagger import Tagger
from random_models import make_folder
from task_examples import EXAMPLES, changed, sized


def weights_of(folder):
    (weights,) = folder.glob("head-*.safetensors")
    return weights.read_bytes()


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_learnt_and_its_folder_says_the_same(name, model, tmp_path):
    examples = EXAMPLES[name]
    settings = changed(elmo="both", epochs=25, patience=0, l2=0.01)
    trained = learn(TASKS[name], examples, examples, tmp_path, settings=settings, elmo=model)
    score = next(iter(trained.scores.values()))
    assert score > 0.9, trained.scores
    again = load_trained(str(tmp_path))
    assert again.evaluate(examples) == trained.scores
    assert again.answer(examples[:1]) == again.answer(examples)[:1]
    shares = again.head.words.layer_weights()
    assert [*shares] == ["input", "output"]
    assert all(sum(share) == pytest.approx(1) for share in shares.values())
    assert all(mix.scale.item() != pytest.approx(0.2) for mix in again.head.words.mixes.values())


def test_plain_texts_may_be_asked(tmp_path):
    examples = EXAMPLES["pos"]
    trained = learn(TASKS["pos"], examples, examples, tmp_path, settings=changed(elmo="none"))
    said = trained.ask(["the owl sleeps", "now"])
    assert [*map(len, said)] == [3, 1]
    assert trained.ask(["owl, fox"], split="moses") == trained.ask(["owl , fox"])


def test_text_is_asked_as_it_was_learnt(tmp_path):
    (tmp_path / "texts").write_text("1\t很好\n0\t不好\n" * 4, "utf-8")
    settings = changed(elmo="none", split="characters")
    examples = TASKS["texts"].read(tmp_path / "texts", split=settings.split)
    assert examples[0].words == ("很", "好")
    trained = learn(TASKS["texts"], examples, examples, tmp_path / "run", settings=settings)
    assert load_trained(tmp_path / "run").split == "characters"
    assert trained.ask(["不好"]) == trained.ask(["不 好"], split="spaces")
    with pytest.raises(ConfigError, match="no tokenizer is called 'x'"):
        changed(split="x")


def test_iob2_tags_chosen_together_may_end(tmp_path):
    examples = [Tagged(("in", "New", "York", "now"), ("O", "B-LOC", "I-LOC", "O"))] * 8
    settings = changed(elmo="none", epochs=25, crf=True)
    trained = learn(TASKS["pos"], examples, examples, tmp_path, settings=settings)
    assert trained.scores["accuracy"] == 1


@pytest.mark.parametrize("elmo", ["none", "input", "output"])
def test_elmo_goes_in_where_it_is_told(elmo, model, tmp_path):
    examples = EXAMPLES["ner"]
    settings = changed(elmo=elmo)
    trained = learn(TASKS["ner"], examples, examples, tmp_path, settings=settings, elmo=model)
    assert [*trained.head.words.layer_weights()] == ([] if elmo == "none" else [elmo])
    assert (tmp_path / "elmo").is_dir() == (elmo != "none")


def test_a_bilm_that_learns_along_is_kept_with_the_head(model, tmp_path):
    before = model.pretrained.fingerprint()
    examples = EXAMPLES["pos"]
    settings = changed(tune=True, characters=0, word_dim=0)
    trained = learn(TASKS["pos"], examples, examples, tmp_path, settings=settings, elmo=model)
    assert json.loads((tmp_path / "task.json").read_text())["elmo"] != before
    assert model.pretrained.fingerprint() == before
    assert trained.evaluate(examples) == trained.scores


def test_a_stopped_run_goes_on_and_ends_with_the_same_bits(model, tmp_path, monkeypatch):
    task, examples, settings = TASKS["ner"], EXAMPLES["ner"], changed(epochs=4)
    learn(task, examples, examples, tmp_path / "whole", settings=settings, elmo=model)

    def stop(*arguments, **named):
        told.append(log(*arguments, **named))
        if len(told) == 2:
            raise KeyboardInterrupt
        return told[-1]

    told, log = [], story._log
    monkeypatch.setattr(story, "_log", stop)
    with pytest.raises(KeyboardInterrupt):
        learn(task, examples, examples, tmp_path / "cut", settings=settings, elmo=model)
    learn(task, examples, examples, tmp_path / "cut", settings=settings, elmo=model)
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")
    epochs = [
        json.loads(line)["epoch"] for line in (tmp_path / "cut/log.jsonl").read_text().splitlines()
    ]
    assert epochs == [1, 2, 3, 4]
    learn(task, examples, examples, tmp_path / "cut", settings=settings, elmo=model)  # nothing left
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")
    left = torch.load(tmp_path / "cut" / checkpoint.NAME, weights_only=True)
    assert (left["epoch"], left["weights"], left["optimizer"]) == (4, {}, {})


def test_the_best_epoch_is_kept(tmp_path, monkeypatch):
    examples, falling, saved = EXAMPLES["pos"], count(3, -1), []
    task = replace(TASKS["pos"], score=lambda *_: {"accuracy": next(falling)})

    def save(trained, *rest):
        saved.append(copy.deepcopy(trained.head.state_dict()))
        folder.save_trained(trained, *rest)

    monkeypatch.setattr(story, "save_trained", save)
    settings = changed(elmo="none", epochs=3)
    trained = learn(task, examples, examples, tmp_path, settings=settings)
    assert (trained.epoch, trained.scores) == (1, {"accuracy": 3})
    (best,) = saved
    assert all(torch.equal(best[name], own) for name, own in trained.head.state_dict().items())


class Spied(torch.optim.AdamW):
    """An optimiser that tells the rates of its updates, and how long their gradients are."""

    told = ()

    def step(self):
        rates = [group["lr"] for group in self.param_groups]
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        length = torch.nn.utils.get_total_norm([grad for grad in grads if grad is not None])
        Spied.told.append((rates, length.item()))
        super().step()


def test_updates_get_smaller_and_none_is_too_large(model, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", Spied)
    monkeypatch.setattr(Spied, "told", [])
    examples, settings = EXAMPLES["pos"], changed(epochs=4, clip_norm=0.01)
    learn(TASKS["pos"], examples, examples, tmp_path, settings=settings, elmo=model)
    rates, lengths = zip(*Spied.told, strict=True)
    left = [1 - place / len(rates) for place in range(len(rates))]
    rate = settings.learning_rate
    assert [*rates] == [pytest.approx([rate * now, 10 * rate * now]) for now in left]
    assert max(lengths) == pytest.approx(0.01, rel=1e-3)


def test_every_epoch_reads_all_examples_in_an_order_of_its_own(tmp_path, monkeypatch):
    seen, loss = [], Tagger.loss
    monkeypatch.setattr(
        Tagger, "loss", lambda head, batch: (seen.extend(batch), loss(head, batch))[1]
    )
    examples = EXAMPLES["pos"]
    learn(TASKS["pos"], examples, examples, tmp_path, settings=changed(elmo="none", epochs=2))
    first, second = seen[: len(examples)], seen[len(examples) :]
    assert first != second
    assert sorted(first, key=repr) == sorted(second, key=repr) == sorted(examples, key=repr)


def test_a_large_penalty_holds_the_weights_of_layers_together(model, tmp_path):
    examples, apart = EXAMPLES["pos"], {}
    for l2 in (0.0, 1000.0):
        settings = changed(epochs=15, l2=l2)
        trained = learn(
            TASKS["pos"], examples, examples, tmp_path / str(l2), settings=settings, elmo=model
        )
        (shares,) = trained.head.words.layer_weights().values()
        apart[l2] = max(shares) - min(shares)
    assert apart[0.0] > 0.2
    assert apart[1000.0] < 0.05


def test_decay_keeps_weights_small(tmp_path):
    examples, sizes = EXAMPLES["pos"], []
    for decay in (0.0, 20.0):
        settings = changed(elmo="none", epochs=5, decay=decay)
        out = tmp_path / str(decay)
        trained = learn(TASKS["pos"], examples, examples, out, settings=settings)
        sizes.append(trained.head.context.ahead[0].weight_hh_l0.norm())
    assert sizes[1] < 0.5 * sizes[0]


def test_a_new_head_knows_how_large_layers_are_and_feeds_texts_as_it_is_told(model, tmp_path):
    examples = EXAMPLES["pos"]
    for by_sentence in (True, False):
        settings = changed(epochs=1, by_sentence=by_sentence)
        out = tmp_path / str(by_sentence)
        trained = learn(TASKS["pos"], examples, examples, out, settings=settings, elmo=model)
        words = trained.head.words
        assert words.frozen.feed.by_sentence == by_sentence
        read = words([example.words for example in examples])
        means = read.layers[:, read.mask].mean(1)
        torch.testing.assert_close(means, torch.zeros_like(means), atol=0.01, rtol=0)


def test_a_run_whose_head_had_fewer_labels_is_another(tmp_path, monkeypatch):
    """As an older version's may: its examples and settings are the same."""
    examples, settings = EXAMPLES["ner"], changed(elmo="none", epochs=2)
    fewer = replace(TASKS["ner"], labels=lambda _: ["O", "S-LOC"])
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "close", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            learn(fewer, examples, examples, tmp_path, settings=settings)
    with pytest.raises(InputError, match="a run with other examples, settings or another biLM"):
        learn(TASKS["ner"], examples, examples, tmp_path, settings=settings)


def test_another_seed_is_another_head(tmp_path):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    for seed in (0, 1):
        settings = changed(elmo="none", seed=seed)
        learn(task, examples, examples, tmp_path / str(seed), settings=settings)
    assert weights_of(tmp_path / "0") != weights_of(tmp_path / "1")


def test_waiting_for_a_better_epoch_ends(tmp_path):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    settings = changed(elmo="none", epochs=50, patience=2, learning_rate=1e-9, characters=0)
    learn(task, examples, examples, tmp_path, settings=settings)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 3


# A label that no example has, and how it is told.
UNSEEN = {
    "ner": ("S-X", "X"), "chunking": ("S-X", "X"), "pos": ("X", "X"), "roles": ("B-X", "B-X"),
    "sentiment": ("X", "X"), "entailment": ("X", "X"),
}  # fmt: skip


def _relabelled(example, label):
    if isinstance(example, Labelled):
        return replace(example, label=label, phrases=())
    if isinstance(example, Pair):
        return replace(example, label=label)
    return replace(example, tags=(label,) * len(example.words))


@pytest.mark.parametrize("name", UNSEEN)
def test_labels_that_were_never_learnt_are_never_right(name, tmp_path):
    task, examples = TASKS[name], EXAMPLES[name]
    label, shown = UNSEEN[name]
    other = [_relabelled(example, label) for example in examples]
    settings, told = changed(elmo="none", epochs=1), []
    trained = learn(
        task, examples, [*examples, *other], tmp_path, settings=settings, tell=told.append
    )
    assert told[1].endswith(f"that none to learn from has: {shown}")
    assert next(iter(trained.evaluate(other).values())) == 0
    with pytest.raises(InputError, match=f"labelled {shown}, those to .*of one task"):
        learn(task, examples, other, tmp_path / "other", settings=settings)


@pytest.mark.parametrize("name", TASKS)
def test_a_thousand_words_and_a_single_one_are_read(name, model, tmp_path):
    """And neither feels the other: alone, each is answered as beside the other."""
    examples = [sized(name, words) for words in (1000, 1)]
    settings = changed(epochs=1, words_per_batch=1, hidden=4)
    trained = learn(TASKS[name], examples, examples, tmp_path, settings=settings, elmo=model)
    together = trained.answer(examples)
    assert [trained.answer([example])[0] for example in examples] == together
    if TASKS[name].plain is plain.TAGS:
        assert [*map(len, together)] == [1000, 1]


@pytest.mark.parametrize("name", ["entailment", "questions", "coreference"])
def test_a_text_too_long_for_memory_is_refused_before_anything_is_learnt(name, tmp_path):
    examples, settings = EXAMPLES[name], changed(elmo="none", epochs=1)
    assert TASKS[name].longest is not None
    task = replace(TASKS[name], longest=99)
    trained = learn(task, examples, examples, tmp_path / "short", settings=settings)
    longer = [*examples, sized(name, 110)]
    says = r"1[01]\d words that begin .*at most 99; cut the text in parts"
    with pytest.raises(InputError, match=says):
        replace(trained, task=task).answer(longer)
    with pytest.raises(InputError, match=says):
        learn(task, examples, longer, tmp_path / "long", settings=settings)
    assert not (tmp_path / "long").exists()


def test_an_answer_does_not_feel_the_texts_beside_it(tmp_path):
    """A text of one word has no other to look at; its neighbours' padding is none."""
    examples = [*EXAMPLES["questions"][:3], sized("questions", 1)]
    settings = changed(elmo="none", epochs=1)
    trained = learn(TASKS["questions"], examples, examples, tmp_path, settings=settings)
    with torch.no_grad():
        together, alone = (trained.head._scores(some)[0] for some in (examples, examples[-1:]))
    torch.testing.assert_close(together[-1, :1], alone[0])


def test_vectors_of_a_file_are_where_words_begin(tmp_path):
    file = tmp_path / "vectors.txt"
    numbers = (number * 8 for number in ("1 ", "2 ", "3 "))
    file.write_text("3 8\nCat {}\nwombat {}\n. . . {}\n".format(*numbers))
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    settings = changed(elmo="none", vectors=str(file), freeze_vectors=True)
    trained = learn(task, examples, examples, tmp_path / "out", settings=settings)
    words = trained.head.words
    rows = words.lexicon.rows([("CAT", "Wombat", "never")])[0]
    assert words.table.weight[rows[0]].tolist() == [1] * 8
    assert len(words.table.weight) == words.lexicon.learnt == rows[1]  # no wombat to learn from
    read = words([("Wombat", "cat", "never")]).vectors[0, :, :8]
    assert read[:2].tolist() == [[2] * 8, [1] * 8]
    assert torch.equal(read[2], words.table.weight[1])
    with pytest.raises(InputError, match="vectors of 8 numbers, but word_dim is 9; say word_dim 8"):
        learn(
            task,
            examples,
            examples,
            tmp_path / "b",
            settings=changed(elmo="none", vectors=str(file), word_dim=9),
        )
    file.write_text("\ufeffcat 1 2 3 4 5 6 7 8\n", "utf-8")
    assert read_vectors(file, 8)[0] == ["cat"]
    file.write_text("cat 1 2 3 4 5 6 7 8\nwombat 1 2 3 4 5 6 7 nan\n")
    with pytest.raises(FormatError, match=r"vectors.txt, line 2: a vector that is not finite"):
        learn(task, examples, examples, tmp_path / "b", settings=settings)
    file.write_text("cat 1 2 3 4 5 6 7 8\ndog 1\n")
    with pytest.raises(FormatError, match=r"vectors.txt, line 2: 1 numbers, expected 8"):
        learn(task, examples, examples, tmp_path / "b", settings=settings)


def test_other_examples_or_settings_are_refused(tmp_path):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    settings = changed(elmo="none")
    learn(task, examples, examples, tmp_path, settings=settings)
    with pytest.raises(InputError, match="a run with other examples, settings or another biLM"):
        learn(task, examples[1:], examples, tmp_path, settings=settings)
    with pytest.raises(InputError, match="a run with other examples, settings or another biLM"):
        learn(task, examples, examples, tmp_path, settings=changed(elmo="none", hidden=3))
    with (
        DirectoryLock(tmp_path, ""),
        pytest.raises(InputError, match="another process trains there"),
    ):
        learn(task, examples, examples, tmp_path, settings=settings)
    with pytest.raises(InputError, match="elmo is 'input', but no biLM is given"):
        learn(task, examples, examples, tmp_path, settings=changed())


def test_another_bilm_does_not_go_on_where_one_was_stopped(model, tmp_path):
    task, examples, settings = TASKS["pos"], EXAMPLES["pos"], changed(epochs=1)
    learn(task, examples, examples, tmp_path / "run", settings=settings, elmo=model)
    (tmp_path / "other").mkdir()
    other = elmokit.load(make_folder(tmp_path / "other", size=0.5))
    with pytest.raises(InputError, match="or another biLM"):
        learn(task, examples, examples, tmp_path / "run", settings=settings, elmo=other)


def test_what_cannot_be_learnt_is_refused(model, tmp_path):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    for some in ([examples, []], [[], examples]):
        with pytest.raises(InputError, match="needs examples to learn from and others"):
            learn(task, *some, tmp_path, settings=changed(elmo="none"))
    carrying = elmokit.Embedder(model.pretrained, elmokit.LoadOptions(state="carry"))
    with pytest.raises(InputError, match="state is 'carry', expected 'zero'"):
        learn(task, examples, examples, tmp_path, settings=changed(), elmo=carrying)
    for tune in (False, True):
        settings = changed(layers=(0, 3), tune=tune)
        with pytest.raises(ConfigError, match=r"layers is \(0, 3\), expected some of 0 to 2"):
            learn(task, examples, examples, tmp_path, settings=settings, elmo=model)


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    with pytest.raises(NumericError, match=r"epoch \d: the loss is .*smaller learning_rate"):
        learn(
            task,
            examples,
            examples,
            tmp_path,
            settings=changed(elmo="none", learning_rate=1e30, epochs=9, patience=0),
        )


def test_a_gradient_that_is_no_number_ends_the_run(tmp_path, monkeypatch):
    task, examples = TASKS["pos"], EXAMPLES["pos"]
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(float("inf")))
    with pytest.raises(NumericError, match=r"epoch 1: the loss is \d.*, its gradient inf long"):
        learn(task, examples, examples, tmp_path, settings=changed(elmo="none"))


def test_few_words_tell_how_large_layers_are(monkeypatch):
    texts = [(str(place),) * 30 for place in range(9)]
    drawn = story._drawn(texts, 0)
    assert sorted(drawn) == texts
    monkeypatch.setattr(story, "_SETTLED_WORDS", 100)
    assert story._drawn(texts, 0) == drawn[:3]
    monkeypatch.setattr(story, "_SETTLED_WORDS", 10)
    assert story._drawn(texts, 0) == drawn[:1]


def fill_the_disk(model, folder, box):
    """A run whose head may be written, and whose biLM may not."""
    torch.set_num_threads(1)  # those of a process that forked are gone
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    examples = EXAMPLES["pos"]
    try:
        learn(TASKS["pos"], examples, examples, folder, settings=changed(), elmo=model)
    except OutputError as error:
        box.put(str(error))


def test_a_full_disk_is_one_clear_line(tmp_path):
    model = elmokit.load(make_folder(tmp_path, dim=200, projection_dim=20))
    context = multiprocessing.get_context("fork")
    box = context.Queue()
    process = context.Process(target=fill_the_disk, args=(model, tmp_path / "out", box))
    process.start()
    assert re.fullmatch(r".*: cannot be written \([^()]*[Tt]oo large.*\)", box.get(timeout=60))
    process.join()


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="hidden is 0, expected more than 0"):
        TaskSettings(hidden=0)
    with pytest.raises(ConfigError, match=r"dropout is 1.0, expected 0 to below 1"):
        TaskSettings(dropout=1.0)
    with pytest.raises(ConfigError, match="word_dim and characters cannot both be 0"):
        TaskSettings(elmo="none", word_dim=0, characters=0)
    with pytest.raises(ConfigError, match="no vectors are given"):
        TaskSettings(freeze_vectors=True)
    with pytest.raises(ConfigError, match="seed is 9223372036854775808"):
        TaskSettings(seed=2**63)
    for useless in ({"tune": True}, {"layers": (2,)}):
        with pytest.raises(ConfigError, match="elmo is 'none': there are no layers"):
            TaskSettings(elmo="none", **useless)
    with pytest.raises(ConfigError, match=r"layers is \(0, 0\), expected each once"):
        TaskSettings(layers=(0, 0))


def test_a_folder_of_something_else_is_one_clear_line(tmp_path, model):
    with pytest.raises(FormatError, match=r"no task.json; expected a folder that elmo train made"):
        load_trained(tmp_path, TASKS)
    examples = EXAMPLES["pos"]
    learn(TASKS["pos"], examples, examples, tmp_path, settings=changed(), elmo=model)
    record = json.loads((tmp_path / "task.json").read_text())
    (tmp_path / "task.json").write_text(json.dumps(record | {"elmo": "0" * 64}))
    with pytest.raises(FormatError, match="was trained with another biLM"):
        load_trained(tmp_path, TASKS)
    for wrong in ({"labels": ["A"]}, {"settings": record["settings"] | {"hidden": 10**6}}):
        (tmp_path / "task.json").write_text(json.dumps(record | wrong))
        with pytest.raises(FormatError, match=r"has the shape .*is it the file of this model"):
            load_trained(tmp_path, TASKS)
    for wrong, told in (
        ({"elmo": None}, "elmo is None, but the settings say 'input'"),
        (
            {"settings": record["settings"] | {"hidden": 10**9}},
            "hidden is 1000000000, expected at most 1048576",
        ),
        ({"learnt": 1}, "learnt is 1, expected 2 to "),
        ({"learnt": 10**6}, "learnt is 1000000, expected 2 to "),
        ({"labels": ["A", "A"]}, "a label is empty or there twice"),
        ({"labels": ["A", ""]}, "a label is empty or there twice"),
    ):
        (tmp_path / "task.json").write_text(json.dumps(record | wrong))
        with pytest.raises(FormatError, match=told):
            load_trained(tmp_path, TASKS)
    (tmp_path / "task.json").write_text(json.dumps(record))
    for junk in (b"x", b"junk", b"hello world\n", b"\x80\x02]q\x00."):
        (tmp_path / "checkpoint.pt").write_bytes(junk)
        with pytest.raises(FormatError, match="not a checkpoint of elmokit"):
            learn(TASKS["pos"], examples, examples, tmp_path, settings=changed(), elmo=model)


def test_the_callers_random_numbers_are_their_own(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    examples = EXAMPLES["pos"]
    learn(TASKS["pos"], examples, examples, tmp_path, settings=changed(elmo="none"))
    assert torch.rand(1) == expected


def test_layers_that_were_worked_out_are_those_of_the_settings(model, tmp_path):
    task, examples, layers = TASKS["pos"], EXAMPLES["pos"], FrozenLayers(model)
    given = {"settings": changed(), "elmo": model}
    apart = learn(task, examples, examples, tmp_path / "a", **given)
    shared = learn(task, examples, examples, tmp_path / "b", **given, layers=layers)
    assert weights_of(tmp_path / "a") == weights_of(tmp_path / "b")
    assert apart.scores == shared.scores
    given["settings"] = changed(layers=(2,))
    with pytest.raises(ConfigError, match=r"layers \(0, 1, 2\) were worked out, but .* \(2,\)"):
        learn(task, examples, examples, tmp_path / "c", **given, layers=layers)
    (tmp_path / "other").mkdir()
    layers = FrozenLayers(elmokit.load(make_folder(tmp_path / "other", size=0.5)), (2,))
    with pytest.raises(ConfigError, match="worked out by another biLM than the one given"):
        learn(task, examples, examples, tmp_path / "c", **given, layers=layers)


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "elmo").mkdir()
    examples = EXAMPLES["pos"]
    with pytest.raises(OutputError, match="holds elmo, but no checkpoint of a run; name a new"):
        learn(TASKS["pos"], examples, examples, tmp_path, settings=changed(elmo="none"))


def test_a_run_killed_before_its_first_head_is_whole_goes_on(tmp_path, monkeypatch):
    """And one that was killed before it had any may be begun with other settings."""
    examples = EXAMPLES["pos"]

    def run(**settings):
        return learn(TASKS["pos"], examples, examples, tmp_path, settings=changed(**settings))

    def killed(*_):
        (tmp_path / "head-1.safetensors").write_bytes(b"x")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(story, "save_trained", killed)
        with pytest.raises(KeyboardInterrupt):
            run(elmo="none")
    again = run(elmo="none", seed=3)
    assert again.epoch
    (tmp_path / "checkpoint.pt").unlink()
    with pytest.raises(OutputError, match="but no checkpoint of a run"):
        run(elmo="none", seed=3)


@pytest.mark.parametrize(
    ("tune", "unwritten"),
    [(True, "elmo"), (True, "head"), (True, "task.json"), (False, "head"), (False, "task.json")],
)
def test_a_run_killed_while_it_saves_keeps_the_head_before(
    tune, unwritten, model, tmp_path, monkeypatch
):
    examples, settings = EXAMPLES["pos"], changed(elmo="input", tune=tune, epochs=3)
    rising, best = count(1), []
    task = replace(TASKS["pos"], score=lambda *_: {"accuracy": next(rising)})

    def dying(write, place):
        def written(*given):
            if given[place].name.startswith(unwritten):
                raise KeyboardInterrupt
            write(*given)

        return written

    def save(trained, *rest):
        if best:
            monkeypatch.setattr(folder, "write_atomically", dying(folder.write_atomically, 0))
            monkeypatch.setattr(folder, "rename_atomically", dying(folder.rename_atomically, 1))
        folder.save_trained(trained, *rest)
        best.append(copy.deepcopy(trained.head.state_dict()))

    monkeypatch.setattr(story, "save_trained", save)
    given = {"settings": settings, "elmo": model}
    with pytest.raises(KeyboardInterrupt):
        learn(task, examples, examples, tmp_path, **given)
    found = load_trained(tmp_path, {"pos": task})
    assert found.epoch == 1
    for name, tensor in found.head.state_dict().items():
        torch.testing.assert_close(tensor, best[0][name])
    monkeypatch.undo()
    assert learn(task, examples, examples, tmp_path, **given).epoch == 3
    assert len([*tmp_path.glob("head-*")]) == len([*tmp_path.glob("elmo*")]) == 1
