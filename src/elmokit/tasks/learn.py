"""Examples become a trained head: the story of a supervised run, from start to end."""

import copy
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.atomic import DirectoryLock, write_atomically
from elmokit.embedder import Embedder
from elmokit.errors import InputError, NumericError, OutputError
from elmokit.formats.pretrained import Pretrained
from elmokit.model.bilm import LanguageModel
from elmokit.progress import Progress
from elmokit.tasks.batches import shuffled_batches
from elmokit.tasks.checkpoint import Checkpoint, another_run, check_folder, digest
from elmokit.tasks.data.example import Pronoun
from elmokit.tasks.folder import (
    Trained,
    answers,
    check_elmo,
    load_trained,
    make_head,
    run_of,
    save_trained,
    sentences_of,
)
from elmokit.tasks.layers import FrozenLayers
from elmokit.tasks.lexicon import Lexicon, check_vectors, read_vectors
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task import Head, Task
from elmokit.tasks.words import Sentence
from elmokit.threads import find_device, using_threads

_MIX_PACE, _BILM_PACE = 10.0, 0.1  # times the learning rate
# Texts and words, at most, that tell how large the numbers of layers are.
_SETTLED_BY, _SETTLED_WORDS = 500, 50_000


def learn(
    task: Task,
    train: Sequence[Any],
    dev: Sequence[Any],
    out: str | Path,
    *,
    settings: TaskSettings,
    elmo: Embedder | None = None,
    layers: FrozenLayers | None = None,
    device: str | torch.device = "cpu",
    tell: Callable[[str], None] = lambda line: None,
) -> Trained:
    """Train a head; the best by its main score on `dev` stands in `out`, and comes back.

    `layers` are those of a frozen biLM that runs before this one worked out.
    Every random choice follows from the seed and the epoch's number: a run that was stopped goes
    on after its last whole epoch, and ends, on a CPU, with the same weights.
    """
    out, elmo = Path(out), None if settings.elmo == "none" else elmo
    if settings.elmo != "none" and elmo is None:
        raise InputError(f"elmo is {settings.elmo!r}, but no biLM is given")
    check_run(task, train, dev, out, settings=settings, elmo=elmo)
    device = find_device(device)
    if elmo is not None and elmo.state_mode != "zero":
        raise InputError(
            f"the biLM's state is {elmo.state_mode!r}, expected 'zero', as examples are independent"
        )
    if elmo is not None and elmo.precision != "float32":
        raise InputError(
            f"the biLM's precision is {elmo.precision!r}, expected 'float32': as a trained head "
            "will read it"
        )
    if elmo is not None and settings.tune:
        elmo = _copy(elmo)  # the caller's biLM stays as it is
    _tell_labels(task, train, dev, tell)
    _make_folder(out)
    busy = f"{out}: another process trains there; wait for its end"
    graphics = [device] if device.type == "cuda" else []
    with DirectoryLock(out, busy), torch.random.fork_rng(graphics), using_threads(None):
        torch.manual_seed(settings.seed)
        head = _new_head(task, train, settings, elmo, layers).to(device)
        optimizer = torch.optim.AdamW(
            _groups(head), lr=settings.learning_rate, weight_decay=settings.decay, fused=True
        )
        what = digest(task, settings, elmo, train, dev)
        done = Checkpoint.read(out, what)
        if not done.epoch:
            done.write(out, head, optimizer)  # the folder is this run's from now on
        if not done.over(settings):
            done.restore(out, head, optimizer)
            if done.epoch:
                tell(f"going on after epoch {done.epoch}")
            if head.words.frozen is not None:
                head.words.frozen.add(sentences_of(task, [*train, *dev]), show_progress_bar=None)

        while not done.over(settings):
            started = time.perf_counter()
            loss = _read_once(head, optimizer, task, train, done.epoch)
            scores = dict(task.score(dev, answers(head, task, dev)))
            done = done.after(next(iter(scores.values())))
            if done.is_best:
                save_trained(Trained(task, head, scores, done.epoch), out, elmo)
            seconds = time.perf_counter() - started
            told = _log(out, done, loss=loss, scores=scores, seconds=seconds)
            if done.over(settings):
                done.close(out)
            else:
                done.write(out, head, optimizer)
            tell(told)
        return load_trained(out, {task.name: task}, device=device)


def check_run(
    task: Task,
    train: Sequence[Any],
    dev: Sequence[Any],
    out: str | Path,
    *,
    settings: TaskSettings,
    elmo: Embedder | None,
    adapts: bool = False,
) -> None:
    """Refuse examples, vectors, a biLM and a folder that cannot be, before anything is worked out.

    If it `adapts`, the biLM will have read on before the head learns, and be another.
    """
    if not train or not dev:
        raise InputError("a head needs examples to learn from and others to be chosen by")
    if any(isinstance(example, Pronoun) for example in train):
        raise InputError(
            "GAP tells of one pronoun of each text what it stands for, expected documents with all "
            "groups to learn from (CoNLL-2012 columns); a head may be judged by GAP"
        )
    learnt, wanted = (task.kinds(task.labels(examples)) for examples in (train, dev))
    if wanted and not wanted & learnt:
        raise InputError(
            f"the examples to choose by are labelled {_shown(sorted(wanted))}, those to learn from "
            f"{_shown(sorted(learnt)) or 'not at all'}; are they of one task?"
        )
    task.check_lengths([*train, *dev])
    if settings.vectors:
        check_vectors(Path(settings.vectors), settings.word_dim)
    if elmo is not None:
        check_elmo(settings, elmo)
    check_folder(Path(out))
    known = run_of(Path(out))
    if known is None:
        return
    same = (known.task, known.settings) == (task.name, settings)
    if elmo is not None and not settings.tune:  # one that learns along is another by now
        same &= adapts != (known.elmo == elmo.pretrained.fingerprint())
    if not same:
        raise another_run(Path(out))


def _read_once(
    head: Head,
    optimizer: torch.optim.Optimizer,
    task: Task,
    train: Sequence[Any],
    epoch: int,
) -> float:
    """Learn from every example once, by ever smaller updates; the mean loss of a batch."""
    settings = head.words.settings
    torch.manual_seed(int(np.random.SeedSequence([settings.seed, epoch]).generate_state(1)[0]))
    head.train()
    losses: list[float] = []
    batches = shuffled_batches(
        train, task.length, words=settings.words_per_batch, seed=(settings.seed, epoch)
    )
    for batch in _counted(batches, task):
        left = 1 - (epoch + len(losses) / len(batches)) / settings.epochs
        for group in optimizer.param_groups:
            group["lr"] = group["pace"] * settings.learning_rate * left
        optimizer.zero_grad(set_to_none=True)
        loss = head.loss(batch)
        (loss + head.words.penalty()).backward()
        length = torch.nn.utils.clip_grad_norm_(head.parameters(), settings.clip_norm)
        if not torch.isfinite(loss + length):
            raise NumericError(
                f"epoch {epoch + 1}: the loss is {loss.item()}, its gradient {length.item()} long, "
                "at an example that begins "
                f"{' '.join(task.sentences(batch[0])[0][:8])!r}; try a smaller learning_rate"
            )
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def _counted(batches: Sequence[Sequence[Any]], task: Task) -> Iterator[Sequence[Any]]:
    """The batches, and on a terminal how many of their examples are done."""
    with Progress(sum(map(len, batches)), unit="examples") as shown:
        for batch in batches:
            yield batch
            shown.advance(len(batch), words=sum(map(len, sentences_of(task, batch))))


def _groups(head: Head) -> list[dict[str, Any]]:
    """What learns, by its pace: mixes are few numbers with far to go, a biLM knows much already."""
    paces: dict[float, list[torch.nn.Parameter]] = {1.0: [], _MIX_PACE: [], _BILM_PACE: []}
    for name, parameter in head.named_parameters():
        if parameter.requires_grad:
            of_mix, of_bilm = name.startswith("words.mixes."), name.startswith("words.bilm.")
            paces[_MIX_PACE if of_mix else _BILM_PACE if of_bilm else 1.0].append(parameter)
    return [{"params": found, "pace": pace} for pace, found in paces.items() if found]


def _new_head(
    task: Task,
    train: Sequence[Any],
    settings: TaskSettings,
    elmo: Embedder | None,
    layers: FrozenLayers | None,
) -> Head:
    """A head with random weights that knows the words and labels of its training examples."""
    file, dim = settings.vectors, settings.word_dim
    given, vectors = read_vectors(Path(file), dim) if file else ([], None)
    sentences = [*dict.fromkeys(sentences_of(task, train))]  # each once, however often it is asked
    lexicon, labels = Lexicon.of(sentences, others=given), task.labels(train)
    head = make_head(task, settings, lexicon=lexicon, labels=labels, elmo=elmo, layers=layers)
    if elmo is not None:
        assert head.words.feed is not None
        drawn = _drawn(sentences, settings.seed)
        some = [words for text in drawn for words in head.words.feed(text)]
        head.words.settle(elmo.embed(some, layers=settings.layers or range(elmo.num_layers)))
    if vectors is not None:
        head.words.begin_with(given, vectors)
    return head


def _drawn(texts: Sequence[Sentence], seed: int) -> list[Sentence]:
    """Some of the texts, by chance; the first of them whole, however long."""
    places = np.random.default_rng(seed).permutation(len(texts))[:_SETTLED_BY]
    words = np.cumsum([len(texts[place]) for place in places])
    return [texts[place] for place in places[: max(1, int((words <= _SETTLED_WORDS).sum()))]]


def _copy(elmo: Embedder) -> Embedder:
    """The same biLM once more, all of it ready to learn."""
    bilm = copy.deepcopy(elmo.bilm).requires_grad_(True)
    return Embedder(Pretrained(LanguageModel(bilm, None), tokenizer=elmo.pretrained.tokenizer))


def _log(
    out: Path, done: Checkpoint, *, loss: float, scores: dict[str, float], seconds: float
) -> str:
    """A line for the log, in place of one of an epoch that was lost, and one for people."""
    line = {"epoch": done.epoch, "loss": loss, "scores": scores, "seconds": round(seconds, 1)}
    path = out / "log.jsonl"
    before = path.read_text("utf-8").splitlines()[: done.epoch - 1] if path.exists() else []
    text = "".join(f"{known}\n" for known in [*before, json.dumps(line)]).encode()
    write_atomically(path, lambda file: file.write(text))
    told = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
    best = "the best so far" if done.is_best else f"the best was epoch {done.best_epoch}"
    return f"epoch {done.epoch}: loss {loss:.4f}; {told} ({best}; {seconds:.0f} s)"


def _tell_labels(
    task: Task, train: Sequence[Any], dev: Sequence[Any], tell: Callable[[str], None]
) -> None:
    """Say what there is to learn, and which labels to be found none teaches."""
    learnt = task.labels(train)
    kinds = _shown(sorted(task.kinds(learnt)))
    labels = f"; labels {kinds}" if kinds else ""
    tell(f"{len(train):,} examples to learn from, {len(dev):,} to choose by{labels}")
    if strange := task.strangers(dev, learnt):
        tell(f"labels of the examples to choose by that none to learn from has: {_shown(strange)}")


def _shown(labels: Sequence[str]) -> str:
    return ", ".join(labels[:10]) + (", …" if len(labels) > 10 else "")


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{out}: cannot be written ({error.strerror})") from None
