"""A trained head becomes a folder that needs nothing else, and back."""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from elmokit import formats
from elmokit.atomic import rename_atomically, write_atomically
from elmokit.config import read_record
from elmokit.embedder import Embedder, LoadOptions
from elmokit.errors import ConfigError, FormatError, InputError, OutputError
from elmokit.formats.native import pack_tensors, read_tensors
from elmokit.model.bilm import LanguageModel
from elmokit.tasks.batches import batches_in_order
from elmokit.tasks.catalog import TASKS
from elmokit.tasks.feed import Feed
from elmokit.tasks.layers import FrozenLayers
from elmokit.tasks.lexicon import Lexicon
from elmokit.tasks.plain import words_by
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task import Head, Task
from elmokit.tasks.words import Sentence, WordVectors
from elmokit.threads import find_device, using_threads

TASK = "task.json"

_WORDS_AT_ONCE = 4000


@dataclass(frozen=True)
class Trained:
    """A head that has learnt its task."""

    task: Task
    head: Head
    scores: dict[str, float]  # on the examples it was chosen by
    epoch: int

    @property
    def split(self) -> str:
        """How raw text is split for it: as what it learnt from was."""
        return self.head.words.settings.split or self.task.plain.split

    def answer(self, examples: Sequence[Any]) -> list[Any]:
        """What the head says of each example."""
        return answers(self.head, self.task, examples)

    def ask(self, texts: Iterable[str], *, split: str | None = None) -> list[Any]:
        """What the head says of plain texts, written as its verb takes them, split as its files."""
        words = words_by(split or self.split)
        return self.answer([self.task.plain.ask(text, words) for text in texts])

    def evaluate(self, examples: Sequence[Any]) -> dict[str, float]:
        """How well its answers are those of the examples; the main score comes first."""
        return dict(self.task.score(examples, self.answer(examples)))


@dataclass(frozen=True)
class TaskRecord:
    """What task.json says."""

    format: Literal["elmokit-task"]
    version: Literal[8]
    task: str
    settings: TaskSettings
    labels: tuple[str, ...]
    words: tuple[str, ...]
    learnt: int  # rows of words that the training text has
    elmo: str | None  # the fingerprint of the biLM; None for a baseline
    scores: dict[str, float]
    epoch: int

    def __post_init__(self) -> None:
        if (self.elmo is None) != (self.settings.elmo == "none"):
            raise ConfigError(f"elmo is {self.elmo!r}, but the settings say {self.settings.elmo!r}")
        if not 2 <= self.learnt <= len(self.words) + 2:
            raise ConfigError(f"learnt is {self.learnt}, expected 2 to {len(self.words) + 2}")
        if "" in self.labels or len(set(self.labels)) < len(self.labels):
            raise ConfigError("a label is empty or there twice")

    @property
    def weights_name(self) -> str:
        """The file of the head's weights, of this epoch alone: it and the record fit together."""
        return f"head-{self.epoch}.safetensors"

    @property
    def elmo_name(self) -> str:
        """The folder of the biLM: one for the run, or of this epoch alone if it learns too."""
        return f"elmo-{self.epoch}" if self.settings.tune else "elmo"


def answers(head: Head, task: Task, examples: Sequence[Any]) -> list[Any]:
    """What a head says of each example, in their order."""
    task.check_lengths(examples)
    found: list[Any] = [None] * len(examples)
    learning = head.training
    head.eval()
    with torch.no_grad(), using_threads(None):
        for places, batch in batches_in_order(examples, task.length, words=_WORDS_AT_ONCE):
            for place, answer in zip(places, head.answer(batch), strict=True):
                found[place] = answer
    head.train(learning)
    return found


def make_head(
    task: Task,
    settings: TaskSettings,
    *,
    lexicon: Lexicon,
    labels: Sequence[str],
    elmo: Embedder | None,
    layers: FrozenLayers | None = None,
) -> Head:
    """A head with random weights; `layers` of a frozen biLM may have been worked out before."""
    frozen = bilm = None
    if settings.elmo != "none":
        assert elmo is not None
        check_elmo(settings, elmo)
        if settings.tune:
            bilm = elmo.bilm
        else:
            frozen = FrozenLayers(elmo, settings.layers, by_sentence=settings.by_sentence)
            if layers is not None and layers.layers != frozen.layers:
                raise ConfigError(
                    f"layers {layers.layers} were worked out, but the settings mix {frozen.layers}"
                )
            if layers is not None and not layers.are_of(elmo):
                raise ConfigError("the layers were worked out by another biLM than the one given")
            if layers is not None and layers.feed != frozen.feed:
                raise ConfigError(
                    f"the layers were worked out with {layers.feed}, not {frozen.feed}"
                )
            frozen = layers or frozen
    feed = None if elmo is None else Feed(settings.by_sentence, elmo.pretrained.tokenizer)
    words = WordVectors(lexicon, settings, frozen=frozen, bilm=bilm, feed=feed)
    return task.make(words, labels)


def check_elmo(settings: TaskSettings, elmo: Embedder) -> None:
    """Refuse a biLM that does not have the layers to mix, or cannot learn as it is to."""
    if not all(0 <= layer < elmo.num_layers for layer in settings.layers):
        raise ConfigError(
            f"layers is {settings.layers}, expected some of 0 to {elmo.num_layers - 1}"
        )
    if settings.tune and elmo.bilm.config.characters is None:
        raise InputError("tune is true, but the biLM reads words of a fixed list; it stays frozen")


def save_trained(trained: Trained, folder: Path, elmo: Embedder | None) -> None:
    """A head and all it needs, its biLM too; the one before it is there until all of this is."""
    head, settings = trained.head, trained.head.words.settings
    record = TaskRecord(
        "elmokit-task",
        8,
        trained.task.name,
        settings,
        tuple(head.labels),
        tuple(head.words.lexicon.words),
        head.words.lexicon.learnt,
        None if elmo is None else elmo.pretrained.fingerprint(),
        trained.scores,
        trained.epoch,
    )
    try:
        if elmo is not None:
            _save_elmo(elmo, folder / record.elmo_name, record.elmo)
        numbers = pack_tensors(_own_weights(head))
        write_atomically(folder / record.weights_name, lambda file: file.write(numbers))
        text = json.dumps(asdict(record), indent=1, ensure_ascii=False).encode()
        write_atomically(folder / TASK, lambda file: file.write(text))
        _forget_others(folder, record)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror})") from None


def load_trained(
    folder: str | Path,
    tasks: Mapping[str, Task] = TASKS,
    *,
    device: str | torch.device = "cpu",
) -> Trained:
    """The head of a folder that `save_trained` made."""
    folder, device = Path(folder), find_device(device)
    if (record := run_of(folder)) is None:
        raise FormatError(f"{folder}: no {TASK}; expected a folder that elmo train made")
    if record.task not in tasks:
        raise FormatError(f"{folder / TASK}: no task is called {record.task!r}; a newer elmokit's?")
    elmo = None
    if record.elmo is not None:
        elmo = _load_elmo(folder / record.elmo_name, record.elmo, device)
    task = tasks[record.task]

    def make() -> Head:
        lexicon = Lexicon(record.words, learnt=record.learnt)
        return make_head(task, record.settings, lexicon=lexicon, labels=record.labels, elmo=elmo)

    with torch.device("meta"):  # numbers that need no memory, until the file is known to have them
        shapes = {name: tuple(tensor.shape) for name, tensor in _own_weights(make()).items()}
    weights = read_tensors(folder / record.weights_name, shapes)
    head = make()
    head.load_state_dict(weights, strict=False)
    return Trained(task, head.eval().to(device), record.scores, record.epoch)


def run_of(folder: Path) -> TaskRecord | None:
    """What the head of a folder learnt, and by which settings, if it has one."""
    if not (folder / TASK).is_file():
        return None
    return read_record(folder / TASK, TaskRecord, "the task.json of a trained head")


def _own_weights(head: Head) -> dict[str, torch.Tensor]:
    """The head's weights, but for those of a biLM, which has files of its own."""
    return {
        name: tensor
        for name, tensor in head.state_dict().items()
        if not name.startswith("words.bilm.")
    }


def _load_elmo(place: Path, fingerprint: str, device: torch.device) -> Embedder:
    elmo = LoadOptions(place, device=device).load()
    if elmo.pretrained.fingerprint() != fingerprint:
        raise FormatError(
            f"{place.parent}: was trained with another biLM than {place}; train it anew"
        )
    return elmo


def _save_elmo(elmo: Embedder, place: Path, fingerprint: str | None) -> None:
    if place.is_dir():
        there = formats.load(place)
        if (there.fingerprint(), there.tokenizer) == (fingerprint, elmo.pretrained.tokenizer):
            return
        shutil.rmtree(place)
    new = place.with_name(f".{place.name}.unfinished")
    shutil.rmtree(new, ignore_errors=True)
    known = elmo.pretrained
    read = known.vocabulary if elmo.bilm.config.characters is None else None
    needed = replace(known, model=LanguageModel(elmo.bilm), vocabulary=read)
    exact = all(torch.equal(weight, weight.half().float()) for weight in elmo.bilm.parameters())
    formats.save(needed, new, half=exact)
    rename_atomically(new, place)


def _forget_others(folder: Path, record: TaskRecord) -> None:
    """Take away the heads and biLMs of other epochs."""
    for path in (*folder.glob("head-*.safetensors"), *folder.glob("elmo-*")):
        if path.name in (record.weights_name, record.elmo_name):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sentences_of(task: Task, examples: Iterable[Any]) -> list[Sentence]:
    """All sentences of examples."""
    return [words for example in examples for words in task.sentences(example)]


def text_for(
    elmo: Embedder, task: Task, settings: TaskSettings, examples: Iterable[Any]
) -> list[Sentence]:
    """The sentences of examples as a biLM is fed them, each once."""
    feed = Feed(settings.by_sentence, elmo.pretrained.tokenizer)
    return feed.sentences(sentences_of(task, examples))
