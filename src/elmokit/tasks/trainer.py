"""Training of a task's head: the loop over epochs, resumable after each of them."""

import copy
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.atomic import (
    ResumableDirectory,
    check_manifest,
    read_checkpoint,
    write_atomically,
    write_checkpoint,
)
from elmokit.batching import minibatches
from elmokit.embedder import Embedder
from elmokit.errors import InputError, NumericError, OutputError
from elmokit.formats.pretrained import Pretrained
from elmokit.model.bilm import LanguageModel
from elmokit.model_config import make_record
from elmokit.progress import Progress
from elmokit.tasks.cached_layers import CachedLayers
from elmokit.tasks.datasets.example_records import GapExample, Words
from elmokit.tasks.legacy_0_1 import digest_of_example, digest_of_settings, rename_weights
from elmokit.tasks.saved_model import (
    TASK_FILE,
    TaskModel,
    check_elmo,
    load_task,
    make_head,
    read_task_record,
    save_task,
)
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task_registry import Head, Task, get_task
from elmokit.tasks.word_features import WordVocabulary, check_word_vectors, read_word_vectors
from elmokit.threads import find_device, using_threads

CHECKPOINT_FILE = "checkpoint.pt"

_BILM = "biLM (by its fingerprint)"
_REMEDY = "resume with the same, or name another folder"
# Factors of the learning rate: layer weights are few and have far to go, a biLM is trained already.
_LAYER_WEIGHTS_FACTOR, _BILM_FACTOR = 10.0, 0.1
# Texts and words, at most, from which the mean and deviation of layers are computed.
_NORMALIZER_TEXTS, _NORMALIZER_WORDS = 500, 50_000


def train_task(
    task: str | Task,
    train: str | Path | Sequence[Any],
    dev: str | Path | Sequence[Any],
    out: str | Path,
    *,
    settings: TaskSettings | Mapping[str, Any] | None = None,
    model: Embedder | None = None,
    layers: CachedLayers | None = None,
    device: str | torch.device = "cpu",
    log: Callable[[str], None] = lambda line: None,
) -> TaskModel:
    """Train a head; the epoch with the best main score on `dev` is kept in `out` and returned.

    `train` and `dev` are files or examples. `settings` are those of the task, with the values of a
    mapping replaced. `model` is the biLM whose layers are used, unless `elmo` is "none" in the
    settings. `layers` may hold its layers from earlier runs.

    Every random choice depends only on the seed and the number of the epoch. A stopped run that
    is started again resumes after its last full epoch and ends, on a CPU, with the same weights.

    Example:
        settings = {"epochs": 2, "hidden_size": 16}
        elmokit.train_task("ner", "train.conll", "dev.conll", "ner", settings=settings, model=model)
    """
    task = get_task(task) if isinstance(task, str) else task
    if not isinstance(settings, TaskSettings):
        values = {**vars(task.settings), **(settings or {})}
        settings = make_record(values, TaskSettings, f"the settings of {task.name}")
    train, dev = (task.read(part, tokenizer=settings.tokenizer) for part in (train, dev))
    out, device = Path(out), find_device(device)
    model = _model_to_use(model, settings)
    check_run(task, train, dev, out, settings=settings, model=model)
    if model is not None and settings.finetune:  # a copy: the caller's biLM stays as it is
        bilm = copy.deepcopy(model.bilm).requires_grad_(True)
        model = Embedder(Pretrained(LanguageModel(bilm), tokenizer=model.pretrained.tokenizer))
    _log_labels(task, train, dev, log)
    gpus = [device] if device.type == "cuda" else []
    work = ResumableDirectory(out, {}, manifest_name=None)  # the manifest is in task.json
    with work as directory, torch.random.fork_rng(gpus), using_threads(None):
        torch.manual_seed(settings.seed)
        head = _new_head(task, train, settings, model, layers).to(device)
        optimizer = _make_optimizer(head)
        checkpoint = _read_checkpoint(out, digest_of_run(task, settings, model, train, dev))
        if not checkpoint.epoch:
            checkpoint.write(out, head, optimizer)  # from now on the folder is this run's
        elif not checkpoint.is_over(settings):
            checkpoint.restore(out, task, head, optimizer)
            log(f"resuming after epoch {checkpoint.epoch}")
        if head.features.frozen is not None and not checkpoint.is_over(settings):
            sentences = task.all_sentences([*train, *dev])
            head.features.frozen.add(sentences, show_progress_bar=None)

        while not checkpoint.is_over(settings):
            started = time.perf_counter()
            loss = _train_epoch(head, optimizer, task, train, checkpoint.epoch)
            trained = TaskModel(task, head, {}, checkpoint.epoch + 1)
            scores = dict(task.score(dev, trained.predict_examples(dev)))
            checkpoint = checkpoint.after_epoch(next(iter(scores.values())))
            if checkpoint.is_best:
                save_task(replace(trained, scores=scores), directory, model)
            seconds = time.perf_counter() - started
            with directory.explaining_errors():
                line = _log_epoch(out, checkpoint, loss=loss, scores=scores, seconds=seconds)
            if checkpoint.is_over(settings):
                checkpoint.close(out)
            else:
                checkpoint.write(out, head, optimizer)
            log(line)
        return load_task(out, device=device, tasks={task.name: task})


def check_run(
    task: Task,
    train: Sequence[Any],
    dev: Sequence[Any],
    out: Path,
    *,
    settings: TaskSettings,
    model: Embedder | None,
    finetuned_first: bool = False,
) -> None:
    """Refuse impossible examples, word vectors, biLM or folder before anything is computed.

    With `finetuned_first` the biLM will be fine-tuned on the text before the head is trained, so
    its fingerprint in the folder of an earlier run differs.
    """
    if not train or not dev:
        raise InputError("training needs examples to train on, and others to choose the epoch by")
    if any(isinstance(example, GapExample) for example in train):
        raise InputError(
            "GAP has only one pronoun of each text annotated, expected documents with all clusters "
            "to train on (CoNLL-2012 columns); GAP can only be used for evaluation"
        )
    trained, wanted = (task.label_types(task.labels(examples)) for examples in (train, dev))
    if wanted and not wanted & trained:
        raise InputError(
            f"the dev examples are labelled {_first_ones(sorted(wanted))}, the training examples "
            f"{_first_ones(sorted(trained)) or 'not at all'}; are they of one task?"
        )
    task.check_lengths([*train, *dev])
    if settings.word_vectors:
        check_word_vectors(Path(settings.word_vectors), settings.word_embedding_size)
    if model is not None:
        check_elmo(settings, model)
    if out.is_dir() and not (out / CHECKPOINT_FILE).exists():
        others = (path for path in out.iterdir() if not path.name.endswith(".unfinished"))
        if (other := next(others, None)) is not None:
            name = other.name
            raise OutputError(f"{out}: holds {name}, but no checkpoint of a run; name a new folder")
    elif out.exists() and not out.is_dir():
        raise OutputError(f"{out}: is a file, expected a directory; name another one")
    if (record := read_task_record(out)) is None:
        return
    elmo = None if model is None else model.pretrained.fingerprint()
    if settings.finetune or finetuned_first:
        if finetuned_first and record.elmo == elmo:
            raise InputError(
                f"{out}: was started with the biLM as it is, now fine-tuned first; {_REMEDY}"
            )
        elmo = record.elmo  # the biLM has changed by now
    manifest = {"task": task.name, **asdict(settings), _BILM: elmo}
    stored = {"task": record.task, **asdict(record.settings), _BILM: record.elmo}
    check_manifest(stored, manifest, name=str(out), remedy=_REMEDY)


@dataclass(frozen=True)
class Checkpoint:
    """The progress of a run after an epoch."""

    what: str  # the digest of its task, settings, biLM and examples
    epoch: int = 0
    best: float = float("-inf")
    best_epoch: int = 0
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)

    def restore(
        self, folder: Path, task: Task, head: Head, optimizer: torch.optim.Optimizer
    ) -> None:
        try:
            head.load_state_dict(rename_weights(task.name, head.state_dict(), self.weights))
        except RuntimeError:
            raise InputError(
                f"{folder}: was started with other labels, by an older version; {_REMEDY}"
            ) from None
        optimizer.load_state_dict(self.optimizer)
        for group in optimizer.param_groups:
            if "pace" in group:  # its name in 0.1
                group["rate_factor"] = group.pop("pace")

    def write(self, folder: Path, head: Head, optimizer: torch.optim.Optimizer) -> None:
        now = replace(self, weights=head.state_dict(), optimizer=optimizer.state_dict())
        write_checkpoint(vars(now), folder / CHECKPOINT_FILE)

    def close(self, folder: Path) -> None:
        """Write that the run is over, without the weights and state that only resuming needs."""
        write_checkpoint(vars(replace(self, weights={}, optimizer={})), folder / CHECKPOINT_FILE)

    def after_epoch(self, score: float) -> "Checkpoint":
        """The checkpoint after one more epoch with that score."""
        epoch = self.epoch + 1
        if score > self.best:
            return replace(self, epoch=epoch, best=score, best_epoch=epoch)
        return replace(self, epoch=epoch)

    @property
    def is_best(self) -> bool:
        return self.best_epoch == self.epoch

    def is_over(self, settings: TaskSettings) -> bool:
        """Whether all epochs are done, or the patience is used up."""
        waited = self.epoch - self.best_epoch
        return self.epoch >= settings.epochs or 0 < settings.patience <= waited


def digest_of_run(
    task: Task,
    settings: TaskSettings,
    model: Embedder | None,
    train: Sequence[Any],
    dev: Sequence[Any],
) -> str:
    """The same digest for the same task, settings, biLM and examples."""
    bilm = () if model is None else (model.pretrained.fingerprint(), model.pretrained.tokenizer)
    name, values = digest_of_settings(task.name, settings)
    run = task.revision, name, bilm, values
    digest = hashlib.sha256(repr(run).encode())
    if settings.word_vectors:
        digest.update(Path(settings.word_vectors).read_bytes())
    for example in (*train, None, *dev):
        digest.update(digest_of_example(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _read_checkpoint(out: Path, digest: str) -> Checkpoint:
    """The checkpoint to resume from, or that of a run that has not begun."""
    checkpoint = read_checkpoint(out / CHECKPOINT_FILE, Checkpoint)
    if checkpoint is None or not (checkpoint.epoch or (out / TASK_FILE).exists()):
        return Checkpoint(digest)
    if checkpoint.what != digest:
        raise InputError(
            f"{out}: was started with other examples, or by a version that trains otherwise; "
            f"{_REMEDY}"
        )
    return checkpoint


def _model_to_use(model: Embedder | None, settings: TaskSettings) -> Embedder | None:
    """The biLM that is given, if it is needed and fit for training; none for a baseline."""
    if settings.elmo == "none":
        return None
    if model is None:
        raise InputError(
            f"elmo is {settings.elmo!r}, but no biLM is given; pass model=elmokit.load(), or set "
            "elmo to 'none'"
        )
    if model.state_mode != "zero":
        raise InputError(
            f"the biLM's state is {model.state_mode!r}, expected 'zero', as examples are "
            "independent of each other"
        )
    if model.precision != "float32":
        raise InputError(
            f"the biLM's precision is {model.precision!r}, expected 'float32', as a trained head "
            "uses it"
        )
    return model


def _train_epoch(
    head: Head, optimizer: torch.optim.Optimizer, task: Task, train: Sequence[Any], epoch: int
) -> float:
    """Train on every example once, with a falling learning rate; the mean loss of a batch."""
    settings = head.features.settings
    torch.manual_seed(int(np.random.SeedSequence([settings.seed, epoch]).generate_state(1)[0]))
    head.train()
    losses: list[float] = []
    lengths = [*map(task.length, train)]
    indices = minibatches(lengths, words=settings.words_per_batch, seed=(settings.seed, epoch))
    batches = [[train[index] for index in batch] for batch in indices]
    with Progress(len(train), unit="examples") as progress:
        for batch in batches:
            remaining = 1 - (epoch + len(losses) / len(batches)) / settings.epochs
            for group in optimizer.param_groups:
                group["lr"] = group["rate_factor"] * settings.learning_rate * remaining
            optimizer.zero_grad(set_to_none=True)
            loss = head.loss(batch)
            (loss + head.features.penalty()).backward()
            norm = torch.nn.utils.clip_grad_norm_(head.parameters(), settings.max_grad_norm)
            if not torch.isfinite(loss + norm):
                raise NumericError(
                    f"epoch {epoch + 1}: the loss is {loss.item()}, the gradient norm "
                    f"{norm.item()}, at an example that begins "
                    f"{' '.join(task.sentences(batch[0])[0][:8])!r}; try a smaller learning_rate"
                )
            optimizer.step()
            losses.append(loss.item())
            progress.advance(len(batch), words=sum(map(len, task.all_sentences(batch))))
    return sum(losses) / len(losses)


def _make_optimizer(head: Head) -> torch.optim.Optimizer:
    """An optimizer of the trained parameters, grouped by the factor of their learning rate."""
    settings = head.features.settings
    groups: dict[float, list[torch.nn.Parameter]] = {
        1.0: [], _LAYER_WEIGHTS_FACTOR: [], _BILM_FACTOR: [],
    }  # fmt: skip
    for name, parameter in head.named_parameters():
        if parameter.requires_grad:
            is_mix = name.startswith("features.scalar_mixes.")
            is_bilm = name.startswith("features.bilm.")
            factor = _LAYER_WEIGHTS_FACTOR if is_mix else _BILM_FACTOR if is_bilm else 1.0
            groups[factor].append(parameter)
    return torch.optim.AdamW(
        [{"params": group, "rate_factor": factor} for factor, group in groups.items() if group],
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def _new_head(
    task: Task,
    train: Sequence[Any],
    settings: TaskSettings,
    model: Embedder | None,
    layers: CachedLayers | None,
) -> Head:
    """A head with random weights for the words and labels of its training examples."""
    file, size = settings.word_vectors, settings.word_embedding_size
    words, vectors = read_word_vectors(Path(file), size) if file else ([], None)
    sentences = [*dict.fromkeys(task.all_sentences(train))]  # each once, whatever its examples
    vocabulary = WordVocabulary.from_sentences(sentences, pretrained=words)
    head = make_head(
        task, settings, vocabulary=vocabulary, labels=task.labels(train), model=model, layers=layers
    )
    if model is not None and (preprocess := head.features.preprocess) is not None:
        sample = _sample(sentences, settings.seed)
        prepared = [words for text in sample for words in preprocess(text)]
        numbers = settings.layers or range(model.num_layers)
        head.features.fit_normalizer(model.embed(prepared, layers=numbers))
    if vectors is not None:
        head.features.init_embeddings(words, vectors)
    return head


def _sample(texts: Sequence[Words], seed: int) -> list[Words]:
    """A random sample of the texts, at least one, however long."""
    numbers = np.random.default_rng(seed).permutation(len(texts))[:_NORMALIZER_TEXTS]
    words = np.cumsum([len(texts[number]) for number in numbers])
    count = max(1, int((words <= _NORMALIZER_WORDS).sum()))
    return [texts[number] for number in numbers[:count]]


def _log_epoch(
    out: Path, checkpoint: Checkpoint, *, loss: float, scores: dict[str, float], seconds: float
) -> str:
    """Add an epoch to log.jsonl, in place of one that was interrupted; a line for people."""
    record = {
        "epoch": checkpoint.epoch, "loss": loss, "scores": scores, "seconds": round(seconds, 1),
    }  # fmt: skip
    path = out / "log.jsonl"
    lines = path.read_text("utf-8").splitlines()[: checkpoint.epoch - 1] if path.exists() else []
    write_atomically(path, "".join(f"{line}\n" for line in [*lines, json.dumps(record)]))
    values = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
    best = "best so far" if checkpoint.is_best else f"best: epoch {checkpoint.best_epoch}"
    return f"epoch {checkpoint.epoch}: loss {loss:.4f}; {values} ({best}; {seconds:.0f} s)"


def _log_labels(
    task: Task, train: Sequence[Any], dev: Sequence[Any], log: Callable[[str], None]
) -> None:
    labels = task.labels(train)
    names = _first_ones(sorted(task.label_types(labels)))
    log(f"{len(train):,} training and {len(dev):,} dev examples{f'; labels {names}' * bool(names)}")
    if unseen := task.unseen_labels(dev, labels):
        log(f"labels of dev examples that no training example has: {_first_ones(unseen)}")


def _first_ones(labels: Sequence[str]) -> str:
    return ", ".join(labels[:10]) + (", …" if len(labels) > 10 else "")
