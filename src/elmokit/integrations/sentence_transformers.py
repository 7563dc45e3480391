"""ELMo as the input module of a sentence-transformers model, to encode with and to train."""

import copy
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from elmokit import formats
from elmokit.batching import Batch
from elmokit.embedder import Embedder, LoadOptions
from elmokit.errors import FormatError, InputError
from elmokit.formats.native import pack_tensors, read_tensors
from elmokit.formats.pretrained import FittedHead
from elmokit.model.bilm import LanguageModel
from elmokit.model.scalar_mix import ScalarMix
from elmokit.model.sentence_head import HeadInput
from elmokit.pooling import HEADS, idf_weights
from elmokit.text_pooling import spelling_signs, table_rows
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END

try:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import InputModule
    from sentence_transformers.sentence_transformer import modules as library_modules
except ModuleNotFoundError:
    raise InputError(
        "ElmoWords needs sentence-transformers: pip install 'elmokit[sentence-transformers]'"
    ) from None

logger = logging.getLogger(__name__)

_MODEL, _MIX, _CONFIG = "model", "mixes.safetensors", "config.json"


class ElmoWords(InputModule):  # type: ignore[misc]
    """The vectors of a text's words: a trainable mix of the layers of a biLM.

    With mean pooling, and until it is trained, the vectors of texts are those of
    `encode(texts, layers="mean", pooling="mean")`. The biLM is frozen unless `train_lstms` is set.
    `model` names what `elmokit.load` loads. A saved module contains the model.

    Example:
        words = ElmoWords()
        pooling = modules.Pooling(words.get_embedding_dimension(), "mean")
        model = SentenceTransformer(modules=[words, pooling])
        model.encode(["A cat sat on the mat."]).shape
    """

    save_in_root = False  # the folder of the whole model has files of the same names
    config_keys: ClassVar[list[str]] = ["train_mix", "train_lstms"]

    def __init__(
        self,
        model: str | Path | Embedder | None = None,
        *,
        train_mix: bool = True,
        train_lstms: bool = False,
    ) -> None:
        super().__init__()
        embedder = model if isinstance(model, Embedder) else LoadOptions(model).load()
        if embedder.state_mode != "zero":
            raise InputError(
                f"the model has the state {embedder.state_mode!r}, so that a text's vectors depend "
                "on other texts; load it with state='zero'"
            )
        # What is trained, moved or cast is never the caller's model. The softmax does not fit it.
        given = isinstance(model, Embedder)
        bilm = copy.deepcopy(embedder.bilm) if given or train_lstms else embedder.bilm
        pretrained = replace(embedder.pretrained, model=LanguageModel(bilm))
        self.embedder = Embedder(pretrained, LoadOptions(precision=embedder.precision))
        self.bilm = self.embedder.bilm
        self.mix = ScalarMix(self.embedder.num_layers, trainable=train_mix)
        self.train_mix, self.train_lstms = train_mix, train_lstms
        self.bilm.requires_grad_(False)
        self.bilm.lstms.requires_grad_(train_lstms)

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **options: Any
    ) -> dict[str, Tensor]:
        """The ids of the texts' words, (texts, words, ids of a word), and which sentence has each.

        A text is split into sentences as `Embedder.encode` does.
        """
        texts = [self._sentences(text, prompt or "") for text in inputs]
        words = [[word for sentence in text for word in sentence] for text in texts]
        shape = len(texts), max(1, *map(len, words), 1)
        types = [*dict.fromkeys(word for text in words for word in text)]
        encoded, truncated = self.embedder.pretrained.indexer.encode([*types, SENTENCE_END])
        if truncated:
            logger.warning("%d words are longer than the model reads, and were cut", truncated)
        ids = torch.from_numpy(encoded)
        row_of = {word: row for row, word in enumerate(types)}
        word_ids = torch.zeros(*shape, ids.shape[1], dtype=torch.int32)
        sentences = torch.zeros(shape, dtype=torch.int64)
        for number, text in enumerate(texts):
            count = len(words[number])
            rows = torch.tensor([row_of[word] for word in words[number]], dtype=torch.int64)
            word_ids[number, :count] = ids[rows].int()
            lengths = torch.tensor([len(sentence) for sentence in text], dtype=torch.int64)
            sentences[number, :count] = torch.arange(1, len(text) + 1).repeat_interleave(lengths)
        # The trainer finds the features of a column by the name input_ids.
        return {
            "word_ids": word_ids,
            "input_ids": sentences,  # numbers of sentences, from 1; 0 is padding
            "attention_mask": (sentences > 0).long(),
        }

    def forward(self, features: dict[str, Tensor], **options: Any) -> dict[str, Tensor]:
        """Add the vectors of the words, (texts, words, dim), 0 at padding."""
        layers = self._layers(features)  # (layers, words of all texts, dim)
        mixed = self.mix(layers, torch.ones(layers.shape[1:2], dtype=torch.bool))
        features["token_embeddings"] = _at_words(mixed, features["attention_mask"])
        return features

    def get_embedding_dimension(self) -> int:
        """The size of a word's vector."""
        return self.embedder.dim

    def save(self, output_path: str, *arguments: Any, **options: Any) -> None:
        """Save the model as an elmokit folder, and the mix."""
        folder = Path(output_path)
        pretrained = replace(self.embedder.pretrained, heads=self._heads_to_save())
        weights = self.bilm.parameters()
        exact = all(torch.equal(weight, weight.half().float()) for weight in weights)
        with TemporaryDirectory(dir=folder) as temporary:
            formats.save(pretrained, Path(temporary) / _MODEL, half=exact)
            if (folder / _MODEL).exists():  # a trainer saves to the same folder again
                (folder / _MODEL).rename(Path(temporary) / "old")
            (Path(temporary) / _MODEL).rename(folder / _MODEL)
        (folder / _MIX).write_bytes(pack_tensors(self.mix.state_dict()))
        (folder / _CONFIG).write_text(json.dumps(self.get_config_dict(), indent=2) + "\n", "utf-8")

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> "ElmoWords":
        """The module in a folder that `save` wrote."""
        found = cls.load_dir_path(
            model_name_or_path,
            subfolder=subfolder,
            **{name: options.get(name) for name in ("token", "cache_folder", "revision")},
            local_files_only=bool(options.get("local_files_only", False)),
        )
        folder = Path(found or model_name_or_path)
        config = _read_json(folder / _CONFIG)
        if not isinstance(config, dict) or {*config} != {*cls.config_keys}:
            raise FormatError(f"{folder / _CONFIG}: expected what {cls.__name__}.save wrote")
        module = cls(folder / _MODEL, **config)
        shapes = {name: tuple(tensor.shape) for name, tensor in module.mix.state_dict().items()}
        module.mix.load_state_dict(read_tensors(folder / _MIX, shapes))
        return module

    def _sentences(self, text: object, prompt: str) -> list[list[str]]:
        if isinstance(text, str):
            return self.embedder.tokenize(prompt + text)
        if isinstance(text, list | tuple) and all(isinstance(word, str) for word in text):
            return self.embedder.tokenize([*prompt.split(), *text])
        raise InputError(
            f"a text is {type(text).__name__}, expected a string or a list of words; for pairs, "
            "encode each text by itself"
        )

    def _heads_to_save(self) -> Mapping[str, FittedHead]:
        return {}

    def _layers(self, features: dict[str, Tensor]) -> Tensor:
        """The layers of all words, text after text: (layers, words of all texts, dim)."""
        batch, rows, columns = self._batch(features)
        if not len(batch.words):
            return torch.zeros(self.embedder.num_layers, 0, self.embedder.dim, device=rows.device)
        if torch.is_grad_enabled() and any(p.requires_grad for p in self.bilm.parameters()):
            layers, _ = self.bilm(batch)
        else:
            layers = self.embedder.session.run_batch(batch)
        return cast(Tensor, layers[:, rows, columns])

    def _batch(self, features: dict[str, Tensor]) -> tuple[Batch, Tensor, Tensor]:
        """The sentences of all texts as one batch, and where each word stands in it."""
        sentences = features["input_ids"]
        is_word = sentences > 0
        ids = features["word_ids"][is_word].long()  # (words, ids of a word)
        boundaries, _ = self.embedder.pretrained.indexer.encode([SENTENCE_BEGIN, SENTENCE_END])
        types, type_rows = torch.cat([torch.from_numpy(boundaries).to(ids), ids]).unique(
            dim=0, return_inverse=True
        )
        type_rows = type_rows + 1  # 0 is padding
        texts = is_word.nonzero()[:, 0]
        keys = torch.stack([texts, sentences[is_word]], 1)
        _, rows, lengths = torch.unique_consecutive(
            keys, dim=0, return_inverse=True, return_counts=True
        )
        if not len(keys):
            return Batch(types, sentences.new_zeros(0, 2)), rows, rows
        starts = lengths.cumsum(0) - lengths
        columns = torch.arange(len(rows), device=rows.device) - starts[rows] + 1
        words = rows.new_zeros(len(lengths), int(lengths.max()) + 2)
        words[:, 0] = type_rows[0]
        words[rows, columns] = type_rows[2:]
        words[torch.arange(len(lengths), device=rows.device), lengths + 1] = type_rows[1]
        return Batch(torch.cat([torch.zeros_like(types[:1]), types]), words), rows, columns


class ElmoSentences(ElmoWords):
    """The vector of a text by a sentence head of the model, which is trained.

    `pooling` names the head, as in `encode(texts, pooling="sentence")`, which gives the same
    vectors. No Pooling module follows. `train_lstms` trains the biLM's LSTMs, too.

    Example:
        model = SentenceTransformer(modules=[ElmoSentences()])
        model.similarity(model.encode("A cat sleeps."), model.encode("The cat is asleep."))
    """

    config_keys: ClassVar[list[str]] = ["pooling", "train_lstms"]

    def __init__(
        self,
        model: str | Path | Embedder | None = None,
        *,
        pooling: str = "sentence",
        train_lstms: bool = False,
    ) -> None:
        super().__init__(model, train_mix=False, train_lstms=train_lstms)
        if pooling not in HEADS:
            raise InputError(f"pooling is {pooling!r}, expected one of {', '.join(HEADS)}")
        self.pooling = pooling
        # The module may be trained, and the model's own head stays as it is.
        self.head = copy.deepcopy(self.embedder.pretrained.head(pooling)).requires_grad_(True)

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **options: Any
    ) -> dict[str, Tensor]:
        """The ids of words, and what the head knows of them by their spelling."""
        features = super().preprocess(inputs, prompt, **options)
        vocabulary, config = self.embedder.pretrained.vocabulary, self.head.config
        assert vocabulary is not None  # a model with a head has one
        shape = features["input_ids"].shape
        signs = torch.zeros(*shape, config.num_signs)
        rows = torch.full(shape, -1)
        weights = torch.zeros(shape)
        for number, text in enumerate(inputs):
            words = [word for part in self._sentences(text, prompt or "") for word in part]
            if words:
                count = len(words)
                signs[number, :count] = torch.from_numpy(spelling_signs(words, config.num_signs))
                rows[number, :count] = torch.from_numpy(
                    table_rows(words, vocabulary, config.table_words)
                )
                weights[number, :count] = torch.from_numpy(idf_weights(words, vocabulary)).float()
        return {**features, "signs": signs, "table_rows": rows, "idf_weights": weights}

    def forward(self, features: dict[str, Tensor], **options: Any) -> dict[str, Tensor]:
        """Add the vector of each text, (texts, dim), zero for a text without words."""
        mask = features["attention_mask"]
        layers = self._layers(features).to(self.head.projection.weight.dtype)
        config = self.head.config
        context = None
        if config.context_layers:
            context = _at_words(torch.cat([layers[n] for n in config.context_layers], 1), mask)
        text = HeadInput(
            _at_words(layers[0], mask)[..., : config.context_free_size],
            context,
            features["signs"].to(layers),
            features["table_rows"],
            features["idf_weights"].to(layers),
        )
        has_words = mask.any(1)
        found = self.head(text.select(has_words))  # under autocast, of another dtype
        vectors = found.new_zeros(len(mask), config.output_size)
        features["sentence_embedding"] = vectors.index_put((has_words,), found)
        return features

    def get_embedding_dimension(self) -> int:
        """The size of a text's vector."""
        return self.head.config.output_size

    def _heads_to_save(self) -> Mapping[str, FittedHead]:
        """The head alone: it belongs to the weights as they are now."""
        head = copy.deepcopy(self.head).requires_grad_(False)
        return {self.pooling: FittedHead(head, self.embedder.pretrained.fingerprint())}


def load_sentence_transformer(folder: str | Path, **options: Any) -> SentenceTransformer:
    """The model in a folder that `SentenceTransformer.save` wrote, with a module of this package.

    sentence-transformers itself asks for `trust_remote_code=True`, though the code is that of an
    installed package. Here, only modules of elmokit and of sentence-transformers are made.
    `options` are those of SentenceTransformer.

    Example:
        model = load_sentence_transformer("my-model")
    """
    folder = Path(folder)
    if not (folder / "modules.json").is_file():
        raise FormatError(
            f"{folder}: there is no modules.json, expected a folder that SentenceTransformer.save "
            "wrote"
        )
    entries = _read_json(folder / "modules.json")
    try:
        entries = sorted(entries, key=lambda entry: int(entry["idx"]))
        described = [(str(entry["type"]), str(entry["path"])) for entry in entries]
    except (KeyError, TypeError, ValueError):
        raise FormatError(
            f"{folder / 'modules.json'}: expected a list of modules with idx, type and path"
        ) from None
    modules = [_load_module(folder, *module) for module in described]
    settings = {}
    if (folder / "config_sentence_transformers.json").is_file():
        saved = _read_json(folder / "config_sentence_transformers.json")
        names = ("prompts", "default_prompt_name", "similarity_fn_name")
        settings = {name: saved[name] for name in names if saved.get(name) is not None}
    return SentenceTransformer(modules=modules, **{**settings, **options})


def _load_module(folder: Path, type_name: str, path: str) -> torch.nn.Module:
    """One module of a saved model; no code but elmokit's and the library's is imported."""
    package, _, name = type_name.rpartition(".")
    known: type[Any] | None = None
    if package == __name__:
        known = {"ElmoWords": ElmoWords, "ElmoSentences": ElmoSentences}.get(name)
    elif package.split(".")[0] == "sentence_transformers" and name in library_modules.__all__:
        known = getattr(library_modules, name)
    if known is None:
        raise FormatError(
            f"{folder / 'modules.json'}: the module {type_name!r} is neither of elmokit nor of "
            "sentence-transformers; load it with SentenceTransformer(folder, "
            "trust_remote_code=True) if you trust its code"
        )
    place = folder / path
    if not place.resolve().is_relative_to(folder.resolve()):
        raise FormatError(f"{folder / 'modules.json'}: the path {path!r} is outside the folder")
    return cast(torch.nn.Module, known.load(str(place)))


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read as JSON ({error})") from None


def _at_words(vectors: Tensor, mask: Tensor) -> Tensor:  # (all words, dim) -> (texts, words, dim)
    """The vectors of all words where the words of each text stand, 0 at padding."""
    placed = vectors.new_zeros(*mask.shape, vectors.shape[-1])
    return placed.index_put((mask > 0,), vectors)
