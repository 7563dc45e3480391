"""A trained head with its task: predict, evaluate, save to a folder that needs nothing else, load.

Example:
    model = elmokit.load_task("ner")
    model.predict("Ada Lovelace was born in London.")
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from elmokit import formats
from elmokit.atomic import ResumableDirectory, write_atomically
from elmokit.batching import minibatches
from elmokit.embedder import Embedder, LoadOptions
from elmokit.errors import ConfigError, FormatError, InputError
from elmokit.formats.native import pack_tensors, read_tensors
from elmokit.model.bilm import LanguageModel
from elmokit.model_config import parse_record
from elmokit.tasks.cached_layers import CachedLayers, Preprocessor
from elmokit.tasks.datasets.example_records import Tokenize
from elmokit.tasks.legacy_0_1 import OLD_VERSION, rename_task_json, stored_parameter
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task_registry import TASKS, Head, Task, words_by
from elmokit.tasks.word_features import WordFeatures, WordVocabulary
from elmokit.threads import find_device, using_threads

TASK_FILE = "task.json"

_LINES_AT_ONCE, _WORDS_AT_ONCE = 256, 4000


@dataclass(frozen=True, repr=False)
class TaskModel:
    """A trained head with its task.

    Example:
        tagger = elmokit.load_task("ner")
        tagger.predict(["Ada likes Oslo."])
        tagger.evaluate("dev.conll")
    """

    task: Task
    head: Head
    scores: dict[str, float]  # on the examples by which the epoch was chosen
    epoch: int

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items())
        elmo, labels = self.settings.elmo, len(self.task.label_types(self.labels))
        return (
            f"TaskModel({self.task.name!r}: {type(self.head).__name__}, "
            f"{f'{labels} labels, ' if labels else ''}elmo {elmo!r}, "
            f"tokenizer {self.tokenizer!r}, {scores})"
        )

    @property
    def settings(self) -> TaskSettings:
        return self.head.features.settings

    @property
    def labels(self) -> list[str]:
        """The labels or tags that it predicts; none for questions and coreference."""
        return self.head.labels

    @property
    def tokenizer(self) -> str:
        """The tokenizer of raw text.

        It is that of the training files if they held raw text. If they held words, it is that of
        the biLM's own text, unless that was split at spaces only; then Moses, as words in such
        files are nearly always separated from punctuation.
        """
        preprocess = self.head.features.preprocess
        of_bilm = "spaces" if preprocess is None else preprocess.tokenizer
        fallback = "moses" if of_bilm == "spaces" else of_bilm
        return self.settings.tokenizer or self.task.tokenizer or fallback

    def predict(self, texts: Any, *, tokenizer: str | None = None) -> Any:
        """The prediction for one text, or a list of predictions for a list of texts.

        A text is a string, which is tokenized, or a list of words. Tasks on two texts take pairs,
        or mappings such as {"question": …, "context": …}. Semantic roles need the predicate: a
        string with stars around it, or {"words": […], "predicate": 2}. Coreference takes a string
        or a list of sentences, each a list of words. For a single text that is not a string use a
        list of one.

        Taggers give the words with their tags, classifiers a label, questions an answer, and
        coreference the document with its clusters of mentions.
        """
        if isinstance(texts, str | tuple | Mapping):
            return self.predict([texts], tokenizer=tokenizer)[0]
        return [self.task.text.result(*pair) for pair in self._predict(texts, tokenizer)]

    def predict_json(
        self, texts: Iterable[Any], *, tokenizer: str | None = None
    ) -> list[dict[str, Any]]:
        """The predictions as JSON objects: the sentences of words, and what is predicted."""
        return [self._as_json(*pair) for pair in self._predict(texts, tokenizer)]

    def predict_examples(self, examples: Sequence[Any]) -> list[Any]:
        """The head's raw prediction for each example; labels that they have are ignored."""
        self.task.check_lengths(examples)
        predictions: list[Any] = [None] * len(examples)
        training = self.head.training
        self.head.eval()
        with torch.no_grad(), using_threads(None):
            lengths = [*map(self.task.length, examples)]
            for indices in minibatches(lengths, words=_WORDS_AT_ONCE):
                batch = self.head.predict([examples[index] for index in indices])
                for index, prediction in zip(indices, batch, strict=True):
                    predictions[index] = prediction
        self.head.train(training)
        return predictions

    def apply(
        self, lines: Iterable[str], *, tokenizer: str | None = None, as_json: bool = False
    ) -> Iterator[str]:
        """The output for each line of input, line breaks included; a blank line gives a blank one.

        As JSON, each line of input gives `{"sentences": …, "prediction": …}`, a blank one null.
        Lines before one that is refused are answered first.
        """
        text = self.task.text
        tokenize = words_by(tokenizer or self.tokenizer)
        numbered = enumerate(lines, 1)
        error: InputError | FormatError | None = None
        while error is None:
            examples: list[Any] = []
            try:
                for number, line in islice(numbered, _LINES_AT_ONCE):
                    blank = not text.clean(line).strip()
                    examples.append(None if blank else self._parse_line(line, tokenize, number))
            except (InputError, FormatError) as refused:
                error = refused
            if not examples:
                break
            predictions = iter(self.predict_examples([e for e in examples if e is not None]))
            for example in examples:
                if example is None:
                    yield "null\n" if as_json else "\n"
                elif as_json:
                    record = self._as_json(example, next(predictions))
                    yield json.dumps(record, ensure_ascii=False) + "\n"
                else:
                    yield text.format(example, next(predictions))
        if error is not None:
            raise error

    def evaluate(self, examples: str | Path | Sequence[Any]) -> dict[str, float]:
        """The scores on a file of examples, or on examples; the main score comes first."""
        examples = self.read(examples)
        return dict(self.task.score(examples, self.predict_examples(examples)))

    def read(self, source: str | Path | Sequence[Any]) -> Sequence[Any]:
        """The examples of a file, tokenized as the training files were, or those that are given."""
        return self.task.read(source, tokenizer=self.settings.tokenizer)

    def layer_weights(self) -> dict[str, list[float]]:
        """For the input and the output, the weight of each of the `layers`; 1 in all."""
        return self.head.features.layer_weights()

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers that are weighted."""
        return self.head.features.layers

    def _predict(self, texts: Iterable[Any], tokenizer: str | None) -> Iterator[tuple[Any, Any]]:
        """Each text as an example, and its prediction."""
        tokenize = words_by(tokenizer or self.tokenizer)
        examples = [self.task.text.parse(text, tokenize) for text in texts]
        return zip(examples, self.predict_examples(examples), strict=True)

    def _as_json(self, example: Any, prediction: Any) -> dict[str, Any]:
        return {"sentences": self.task.sentences(example), "prediction": prediction}

    def _parse_line(self, line: str, tokenize: Tokenize, number: int) -> Any:
        try:
            example = self.task.text.parse(line, tokenize)
            self.task.check_lengths([example])
            return example
        except InputError as error:
            raise InputError(f"line {number}: {error}") from None


@dataclass(frozen=True)
class TaskRecord:
    """The contents of task.json."""

    format: Literal["elmokit-task"]
    version: Literal[8, 9]  # 8: the weights have the names of 0.1
    task: str
    settings: TaskSettings
    labels: tuple[str, ...]
    vocabulary: tuple[str, ...]
    num_trained: int  # rows of embeddings that the training text has
    elmo: str | None  # the fingerprint of the biLM; None for a baseline
    scores: dict[str, float]
    epoch: int

    def __post_init__(self) -> None:
        if (self.elmo is None) != (self.settings.elmo == "none"):
            raise ConfigError(f"elmo is {self.elmo!r}, but the settings say {self.settings.elmo!r}")
        rows = len(self.vocabulary) + 2
        if not 2 <= self.num_trained <= rows:
            raise ConfigError(f"num_trained is {self.num_trained}, expected 2 to {rows}")
        if "" in self.labels or len(set(self.labels)) < len(self.labels):
            raise ConfigError("a label is empty or there twice")

    @property
    def weights_name(self) -> str:
        """The file of this epoch's weights, so that weights and record always match."""
        return f"head-{self.epoch}.safetensors"

    @property
    def elmo_name(self) -> str:
        """The folder of the biLM: one for the run, or one for the epoch if it is fine-tuned."""
        return f"elmo-{self.epoch}" if self.settings.finetune else "elmo"


def load_task(
    folder: str | Path, *, device: str | torch.device = "cpu", tasks: Mapping[str, Task] = TASKS
) -> TaskModel:
    """The trained head of a folder that `elmo train` or `train_task` made.

    Example:
        elmokit.load_task("ner").predict(["Ada likes Oslo."])
    """
    folder, device = Path(folder), find_device(device)
    if (record := read_task_record(folder)) is None:
        raise FormatError(f"{folder}: no {TASK_FILE}; expected a folder that elmo train made")
    if record.task not in tasks:
        raise FormatError(
            f"{folder / TASK_FILE}: no task is called {record.task!r}; is it of a newer elmokit?"
        )
    model = None
    if record.elmo is not None:
        model = LoadOptions(folder / record.elmo_name, device=device).load()
        if model.pretrained.fingerprint() != record.elmo:
            raise FormatError(
                f"{folder}: was trained with another biLM than {folder / record.elmo_name}; train "
                "it anew"
            )
    task = tasks[record.task]

    def make() -> Head:
        vocabulary = WordVocabulary(record.vocabulary, num_trained=record.num_trained)
        settings, labels = record.settings, record.labels
        return make_head(task, settings, vocabulary=vocabulary, labels=labels, model=model)

    with torch.device("meta"):  # no memory is allocated until the file is known to have the numbers
        shapes = {name: tuple(tensor.shape) for name, tensor in _own_weights(make()).items()}
    is_old = record.version == OLD_VERSION
    stored = {name: stored_parameter(task.name, name) if is_old else name for name in shapes}
    weights = read_tensors(
        folder / record.weights_name, {stored[name]: shape for name, shape in shapes.items()}
    )
    head = make()
    head.load_state_dict({name: weights[stored[name]] for name in shapes}, strict=False)
    return TaskModel(task, head.eval().to(device), record.scores, record.epoch)


def save_task(trained: TaskModel, directory: ResumableDirectory, model: Embedder | None) -> None:
    """Write a head with all it needs; the previous one stays until everything is written."""
    head, vocabulary = trained.head, trained.head.features.vocabulary
    record = TaskRecord(
        "elmokit-task",
        9,
        trained.task.name,
        trained.settings,
        tuple(head.labels),
        tuple(vocabulary.words),
        vocabulary.num_trained,
        None if model is None else model.pretrained.fingerprint(),
        trained.scores,
        trained.epoch,
    )
    with directory.explaining_errors():
        if model is not None:
            _save_elmo(model, directory, record)
        write_atomically(directory.path / record.weights_name, pack_tensors(_own_weights(head)))
        text = json.dumps(asdict(record), indent=1, ensure_ascii=False)
        write_atomically(directory.path / TASK_FILE, text)
        for path in directory.path.glob("head-*.safetensors"):
            if path.name != record.weights_name:
                path.unlink()
        for path in directory.path.glob("elmo-*"):
            if path.name != record.elmo_name:
                shutil.rmtree(path)


def read_task_record(folder: Path) -> TaskRecord | None:
    """The task.json of a folder, or None if there is none."""
    path = folder / TASK_FILE
    if not path.is_file():
        return None
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # a mark that some editors leave
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if isinstance(values, dict):
        text = json.dumps(rename_task_json(values)).encode()
    return parse_record(text, TaskRecord, str(path), "the task.json of a trained head")


def make_head(
    task: Task,
    settings: TaskSettings,
    *,
    vocabulary: WordVocabulary,
    labels: Sequence[str],
    model: Embedder | None,
    layers: CachedLayers | None = None,
) -> Head:
    """A head with random weights; `layers` may hold layers of a frozen biLM from earlier runs."""
    frozen = bilm = preprocess = None
    if model is not None:
        check_elmo(settings, model)
        preprocess = Preprocessor(settings.by_sentence, model.pretrained.tokenizer)
        if settings.finetune:
            bilm = model.bilm
        else:
            frozen = CachedLayers(model, settings.layers, by_sentence=settings.by_sentence)
            if layers is not None:
                _check_layers(layers, frozen, model)
                frozen = layers
    features = WordFeatures(vocabulary, settings, frozen=frozen, bilm=bilm, preprocess=preprocess)
    return task.head(features, labels)


def check_elmo(settings: TaskSettings, model: Embedder) -> None:
    """Refuse a biLM that lacks the layers to weigh, or that cannot be fine-tuned as asked."""
    if not all(0 <= layer < model.num_layers for layer in settings.layers):
        highest = model.num_layers - 1
        raise ConfigError(f"layers is {settings.layers}, expected some of 0 to {highest}")
    if settings.finetune and model.bilm.config.characters is None:
        raise InputError(
            "finetune is true, but the biLM looks words or characters up in a fixed list; it can "
            "only stay frozen"
        )


def text_for_finetuning(
    model: Embedder, task: Task, settings: TaskSettings, examples: Iterable[Any]
) -> list[tuple[str, ...]]:
    """The sentences of examples as the biLM is given them, each once."""
    preprocess = Preprocessor(settings.by_sentence, model.pretrained.tokenizer)
    return preprocess.distinct_sentences(task.all_sentences(examples))


def _check_layers(layers: CachedLayers, expected: CachedLayers, model: Embedder) -> None:
    if layers.layers != expected.layers:
        raise ConfigError(
            f"the cache holds layers {layers.layers}, but the settings need {expected.layers}"
        )
    if not layers.belong_to(model):
        raise ConfigError("the cached layers are of another biLM than the one given")
    if layers.preprocess != expected.preprocess:
        own, other = layers.preprocess, expected.preprocess
        raise ConfigError(f"the cached layers are of text prepared by {own}, not by {other}")


def _own_weights(head: Head) -> dict[str, torch.Tensor]:
    """The head's weights without those of a biLM, which has files of its own."""
    weights = head.state_dict()
    return {name: weights[name] for name in weights if not name.startswith("features.bilm.")}


def _save_elmo(model: Embedder, directory: ResumableDirectory, record: TaskRecord) -> None:
    folder = directory.path / record.elmo_name
    if folder.is_dir():
        saved = formats.load(folder)
        if (saved.fingerprint(), saved.tokenizer) == (record.elmo, model.pretrained.tokenizer):
            return
    pretrained = model.pretrained
    words = pretrained.vocabulary if model.bilm.config.characters is None else None
    needed = replace(pretrained, model=LanguageModel(model.bilm), vocabulary=words, heads={})
    exact = all(torch.equal(weight, weight.half().float()) for weight in model.bilm.parameters())
    directory.replace_directory(folder.name, partial(formats.save, needed, half=exact))
