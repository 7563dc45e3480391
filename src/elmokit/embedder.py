"""The public API: load a model, embed words, encode texts, ask the language model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit import formats
from elmokit.batching import (
    check_sentences,
    check_texts,
    check_words,
    token_batches,
    token_windows,
)
from elmokit.errors import InputError
from elmokit.formats.alignment import Align
from elmokit.formats.native import read_state, write_state
from elmokit.formats.pretrained import FittedHead, Pretrained
from elmokit.inference_session import (
    CarriedState,
    Directions,
    InferenceSession,
    Layers,
    LayerSelection,
)
from elmokit.language_model_results import Perplexity, Prediction, Score
from elmokit.model.bilm import BiLM, State
from elmokit.model.kernels import Kernel, KernelName
from elmokit.model.packed_linear import Precision
from elmokit.model.sentence_head import SentenceHead
from elmokit.model_config import Direction
from elmokit.pooling import HEADS, Vectors, unit_vectors
from elmokit.process_memory import trim_malloc
from elmokit.progress import Progress
from elmokit.scoring import Scorer, score
from elmokit.text_pooling import TextPooling, default_pooling
from elmokit.threads import find_device, using_threads
from elmokit.tokenizers import get_tokenizer
from elmokit.whitening import Whitening
from elmokit.word_prediction import fill_text, predict_words, sample

StateMode = Literal["zero", "carry", "warm"]
Text = str | Sequence[str]  # raw, or the words of a sentence

# With state="warm", every sentence starts in the state after so many empty sentences.
_WARM_UP: tuple[list[str], ...] = ([],) * 10


def load(
    source: str | Path | None = None,
    weights: str | Path | None = None,
    *,
    tokenizer: str | None = None,
    align: Align | None = None,
    state: StateMode = "zero",
    device: str | torch.device = "cpu",
    precision: Precision = "float32",
    kernel: KernelName = "auto",
    tokens_per_batch: int = 4096,
    cache_bytes: int = 2**28,
    threads: int | None = None,
    offline: bool = False,
    allow_nonfinite: bool = False,
) -> "Embedder":
    """A model ready to embed: a published one by its name, a folder, an archive, or two files.

    Without a source it is the English model in the package. `elmokit.models` lists the names; a
    model is downloaded at its first use. hf://user/model[@revision][/folder] is one of the Hugging
    Face Hub. LoadOptions explains the options.

    Example:
        model = elmokit.load()
        medium = elmokit.load("medium", precision="half")
        mine = elmokit.load("options.json", "weights.hdf5")
    """
    return LoadOptions(
        source,
        weights,
        tokenizer=tokenizer,
        align=align,
        state=state,
        device=device,
        precision=precision,
        kernel=kernel,
        tokens_per_batch=tokens_per_batch,
        cache_bytes=cache_bytes,
        threads=threads,
        offline=offline,
        allow_nonfinite=allow_nonfinite,
    ).load()


@dataclass(frozen=True)
class LoadOptions:
    """What to load, and how to run it: the options of `load` in one record.

    `tokenizer` names how raw text is split, if not as the model says. `align` turns layers to those
    of another language's model, by matrices of Schuster et al. (2019): an .npz whose arrays are
    named by layers, a .pth with the matrix of layer 1, or a dictionary of such files or matrices by
    layer; a file is looked for in the model's folder, too. Without it, models of the catalogue that
    have such matrices are aligned by them. The language model's results do not change. `state` says
    how a sentence starts: from `zero` (its vectors depend on it alone), from one `warm` state for
    all (the state after ten empty sentences), or where the sentence before it ended (`carry`, as
    bilm-tf and AllenNLP did). With `carry`, the k-th sentence of a call goes on where the k-th of
    the call before stopped; a stream is one running text.

    `precision` is that of the LSTMs' weights on a CPU; `half` and `int8` are faster, not exact.
    `kernel` says what runs the LSTMs there: `numba`, compiled layers (the extra elmokit[fast]),
    `torch`, or with `auto` the compiled layers if they can be used.
    `tokens_per_batch` bounds what is computed together, `cache_bytes` the cache of word vectors.
    `threads` is how many may compute; None for one per CPU that the process may use. `offline`
    forbids to download the model, as the environment variable ELMOKIT_OFFLINE=1 does. A model whose
    weights hold a NaN or an infinity is refused unless `allow_nonfinite` is set.

    Example:
        model = elmokit.LoadOptions("english", precision="int8", threads=1).load()
    """

    source: str | Path | None = None
    weights: str | Path | None = None
    tokenizer: str | None = None
    align: Align | None = None
    state: StateMode = "zero"
    device: str | torch.device = "cpu"
    precision: Precision = "float32"
    kernel: KernelName = "auto"
    tokens_per_batch: int = 4096
    cache_bytes: int = 2**28
    threads: int | None = None
    offline: bool = False
    allow_nonfinite: bool = False

    def __post_init__(self) -> None:
        if self.state not in ("zero", "carry", "warm"):
            raise InputError(f"state is {self.state!r}, expected 'zero', 'carry' or 'warm'")
        if self.precision not in ("float32", "half", "int8"):
            raise InputError(
                f"precision is {self.precision!r}, expected 'float32', 'half' or 'int8'"
            )
        if self.kernel not in ("auto", "torch", "numba"):
            raise InputError(f"kernel is {self.kernel!r}, expected 'auto', 'torch' or 'numba'")
        if self.tokens_per_batch < 1:
            raise InputError(f"tokens_per_batch is {self.tokens_per_batch}, expected 1 or more")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads is {self.threads}, expected 1 or more, or None")

    def load(self) -> "Embedder":
        """The model, ready to embed."""
        pretrained = formats.load(
            self.source,
            self.weights,
            tokenizer=self.tokenizer,
            align=self.align,
            offline=self.offline,
            allow_nonfinite=self.allow_nonfinite,
        )
        name = "the English model" if self.source is None else str(self.source)
        return Embedder(pretrained, self, name=name)


class Embedder:
    """A pretrained model that turns sentences into the vectors of its layers.

    Made by `load`, or from a model in memory. Of the options, `source`, `weights` and `tokenizer`
    say where a model is loaded from, and are not looked at here.

    Example:
        model = elmokit.load()
        model.embed([["I", "ate", "an", "apple"]])[0].shape  # (layers, words, dim)
        model.encode(["I ate an apple."]).shape  # (texts, dim)
        model.next_words("The capital of the United", k=1)
    """

    def __init__(
        self,
        pretrained: Pretrained,
        options: LoadOptions | None = None,
        *,
        name: str = "",
        warm_up: Sequence[Sequence[str]] = _WARM_UP,
    ) -> None:
        options = options or LoadOptions()
        self.pretrained = pretrained
        self.name, self.source = name, options.source
        self.precision = options.precision
        self.state_mode = options.state
        self.tokens_per_batch = options.tokens_per_batch
        self.bilm: BiLM = pretrained.model.to(find_device(options.device)).eval().bilm
        self.session = InferenceSession(
            pretrained,
            warm_up=warm_up if options.state == "warm" else (),
            cache_bytes=options.cache_bytes,
            precision=options.precision,
            kernel=options.kernel,
            threads=options.threads,
        )
        self._carried = CarriedState(self.session)

    def __repr__(self) -> str:
        softmax, aligned = self.pretrained.model.softmax, self.bilm.config.aligned_layers
        parts = [
            *([self.name] if self.name else []),
            f"{self.num_layers} layers of {self.dim} dimensions",
            f"{sum(p.numel() for p in self.bilm.parameters()):,} parameters",
            f"{self.precision} on {self.bilm.device}, kernel {self.kernel!r}",
            f"tokenizer {self.pretrained.tokenizer!r}",
            f"softmax over {softmax.num_words:,} words" if softmax else "no softmax",
            *([f"heads {[*self.pretrained.heads]}"] if self.pretrained.heads else []),
            *([f"aligned layers {[*aligned]}"] if aligned else []),
            *([] if self.state_mode == "zero" else [f"state {self.state_mode!r}"]),
        ]
        return f"Embedder({', '.join(parts)})"

    @property
    def kernel(self) -> Kernel:
        """What runs the LSTMs: "numba", compiled layers, or "torch"."""
        return self.session.kernel

    @property
    def num_layers(self) -> int:
        """How many layers a word has, the context-free one included."""
        return self.bilm.config.num_layers + 1

    @property
    def dim(self) -> int:
        """The size of a layer's vector."""
        return self.bilm.config.output_size

    @property
    def default_pooling(self) -> str:
        """The pooling of `encode` where none is named: "sentence", "whitened" or "mean"."""
        return default_pooling(self.pretrained)

    def add_head(self, name: str, head: SentenceHead) -> None:
        """Give the model a sentence head; `save` keeps it, and encode(pooling=name) uses it.

        `name` is "sentence" or "whitened". See `elmokit.fit_whitened`.
        """
        if name not in HEADS:
            raise InputError(f"name is {name!r}, expected one of {', '.join(HEADS)}")
        fitted = FittedHead(head.eval().requires_grad_(False), self.pretrained.fingerprint())
        self.pretrained = replace(self.pretrained, heads={**self.pretrained.heads, name: fitted})

    @property
    def truncated_words(self) -> int:
        """How many different words were too long for the model so far, and were cut."""
        return self.session.truncated_words

    def to(self, device: str | torch.device) -> "Embedder":
        """Move the model to a device; the model itself is returned."""
        self.pretrained.model.to(find_device(device))
        self.state = self._carried.value
        return self

    def embed(
        self,
        sentences: Iterable[Sequence[str]],
        *,
        layers: Layers = "all",
        directions: Directions = "both",
        boundaries: bool = False,
        show_progress_bar: bool | None = None,
    ) -> list[Vectors]:
        """For each sentence, a list of words, an array (layers, words, dim), in the given order.

        `layers` are "all", "top", a number or a list of numbers (0 is the context-free layer, -1
        the top), or all combined into one: "mean", "sum", "concat" (dim grows), or a ScalarMix.
        Layers and directions that are not needed are not computed. `boundaries` keeps the vectors
        of `<S>` and `</S>`. `show_progress_bar` None shows one when the work takes long.

        Example:
            model.embed([["I", "ate", "an", "apple"]], layers="mean")[0].shape  # (1, 4, dim)
        """
        selection = LayerSelection.of(self.bilm.config, layers, directions, boundaries=boundaries)
        listed = [*check_sentences(sentences)]
        # With carry, the k-th sentence goes on where the k-th of the call before stopped.
        windows: Iterable[list[list[str]]]
        windows = [listed] if self.state_mode == "carry" else self._windows(listed)
        return [*self._stream(windows, selection, Progress(len(listed), shown=show_progress_bar))]

    def embed_stream(
        self,
        sentences: Iterable[Sequence[str]],
        *,
        layers: Layers = "all",
        directions: Directions = "both",
        boundaries: bool = False,
        show_progress_bar: bool | None = None,
    ) -> Iterator[Vectors]:
        """The arrays of `embed`, one after the other; sentences are taken as they are needed."""
        selection = LayerSelection.of(self.bilm.config, layers, directions, boundaries=boundaries)
        windows = self._windows(check_sentences(sentences))
        return self._stream(windows, selection, Progress(None, shown=show_progress_bar))

    @overload
    def encode(
        self,
        texts: str | Iterable[Text],
        *,
        layers: Layers | None = None,
        pooling: str | None = None,
        whitening: Whitening | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool = False,
        convert_to_tensor: Literal[False] = False,
    ) -> Vectors: ...

    @overload
    def encode(
        self,
        texts: str | Iterable[Text],
        *,
        layers: Layers | None = None,
        pooling: str | None = None,
        whitening: Whitening | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool = False,
        convert_to_tensor: Literal[True],
    ) -> Tensor: ...

    def encode(
        self,
        texts: str | Iterable[Text],
        *,
        layers: Layers | None = None,
        pooling: str | None = None,
        whitening: Whitening | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool = False,
        convert_to_tensor: bool = False,
    ) -> Vectors | Tensor:
        """One vector per text, (texts, dim), or (dim,) for one string; zero for an empty text.

        A text is raw (it is split as the model's text was) or a list of words. `pooling` is the
        name of one of `elmokit.pooling.POOLINGS`, `layers` are those of `embed`; where they are
        several and not combined, the result is (texts, layers, dim). Without both, it is the best
        sentence head that comes with the model (`default_pooling` names it), which has layers and a
        dim of its own; a model without any gives the mean of all words and layers. Without one of
        them, that one is "mean". `batch_size` bounds how many sentences are computed together; the
        vectors do not depend on it.

            model.encode(texts)                    # the best that the model has
            model.encode(texts, pooling="mean")    # the mean of all words and layers

        To compare sentences with a model that has no head, weight their words by how rare they are,
        in the context-free layer, and whiten the vectors. Fit the whitening to some hundred texts
        or more of the same kind:

            vectors = model.encode(texts, layers=0, pooling="idf")
            whitening = elmokit.Whitening.fit(vectors)
            query = model.encode("Cheap flats", layers=0, pooling="idf", whitening=whitening)
            similarities = model.similarity(query, whitening.transform(vectors))
        """
        one_text = isinstance(texts, str)
        if batch_size is not None and batch_size < 1:
            raise InputError(f"batch_size is {batch_size}, expected 1 or more, or None")
        pool = TextPooling.of(self.pretrained, layers, pooling)
        selection = LayerSelection.of(self.bilm.config, pool.layers)
        tokenized = [*self._tokenize_all([texts] if isinstance(texts, str) else texts)]
        sentences = [sentence for text in tokenized for sentence in text]
        progress = Progress(len(sentences), shown=show_progress_bar)
        stream = self._stream(self._windows(sentences), selection, progress, batch_size=batch_size)
        vectors = np.zeros((len(tokenized), pool.num_layers, pool.dim), np.float32)
        for index, text in enumerate(tokenized):
            words = [word for sentence in text for word in sentence]
            arrays = [*islice(stream, len(text))]
            if words:
                vectors[index] = pool(arrays, words)
        next(stream, None)  # to its end, where truncated words are reported
        if pool.num_layers == 1:
            vectors = vectors[:, 0]
        if whitening is not None:
            vectors = whitening.transform(vectors)
            vectors[[not any(text) for text in tokenized]] = 0
        if normalize_embeddings:
            vectors = unit_vectors(vectors)
        if one_text:
            vectors = vectors[0]
        return torch.from_numpy(vectors).to(self.bilm.device) if convert_to_tensor else vectors

    def similarity(
        self, one: npt.ArrayLike | Tensor, other: npt.ArrayLike | Tensor
    ) -> Vectors:  # -> (rows of one, rows of other)
        """The cosines of all pairs of vectors, (rows, dim) each, or (dim,) for a single one.

        Example:
            model.similarity(model.encode(["A cat."]), model.encode(["A dog.", "A car."]))
        """
        matrices = [_matrix(vectors) for vectors in (one, other)]
        if matrices[0].shape[1] != matrices[1].shape[1]:
            raise InputError(
                f"vectors of {matrices[0].shape[1]} and of {matrices[1].shape[1]} dimensions "
                "cannot be compared"
            )
        cosines: Vectors = unit_vectors(matrices[0]) @ unit_vectors(matrices[1]).T
        return cosines

    def tokenize(self, text: Text) -> list[list[str]]:
        """The sentences of a raw text as lists of words; a list of words is one sentence."""
        if not isinstance(text, str):
            return [check_words(text, "text")[0]]
        tokenizer = get_tokenizer(self.pretrained.tokenizer)
        return [tokenizer.tokenize(sentence) for sentence in tokenizer.split_sentences(text)]

    def perplexity(
        self, texts: Iterable[Text], *, show_progress_bar: bool | None = None
    ) -> Perplexity:
        """How well the model predicts texts, raw or lists of words, forward and backward."""
        return Perplexity.of(self.score_stream(texts, show_progress_bar=show_progress_bar))

    def score(self, texts: Iterable[Text], *, show_progress_bar: bool | None = None) -> list[Score]:
        """For each sentence of the texts, in order, the log-probability of each of its words.

        A sentence starts as the embedder's do; with `carry`, all are running text, from zero.
        """
        return [*self.score_stream(texts, show_progress_bar=show_progress_bar)]

    def score_stream(
        self, texts: Iterable[Text], *, show_progress_bar: bool | None = None
    ) -> Iterator[Score]:
        """The scores of `score`, one after the other; texts are taken as needed, or all (carry)."""
        return score(
            Scorer(self.session),
            (sentence for text in self._tokenize_all(texts) for sentence in text),
            state="carry" if self.state_mode == "carry" else "zero",
            tokens_per_batch=self.tokens_per_batch,
            show_progress_bar=show_progress_bar,
        )

    def next_words(
        self, text: Text, *, k: int = 10, special_tokens: bool = False
    ) -> list[Prediction]:
        """The k likeliest words after a text, raw or a list of words; `</S>` is its end.

        `special_tokens` keeps `<UNK>` and `<S>` among them.
        """
        return predict_words(
            Scorer(self.session),
            self.tokenize(text),
            "forward",
            k=k,
            special_tokens=special_tokens,
            carry=self.state_mode == "carry",
        )

    def previous_words(
        self, text: Text, *, k: int = 10, special_tokens: bool = False
    ) -> list[Prediction]:
        """The k likeliest words before a text, raw or a list of words; `<S>` is its beginning."""
        scorer, sentences = Scorer(self.session), self.tokenize(text)
        return predict_words(scorer, sentences, "backward", k=k, special_tokens=special_tokens)

    def fill(self, text: Text, *, k: int = 10) -> list[list[Prediction]]:
        """For each `___` of a text, the k words that fit best from both sides."""
        return fill_text(Scorer(self.session), text, self.tokenize, k=k)

    def sample(
        self,
        text: Text = "",
        *,
        samples: int = 1,
        direction: Direction = "forward",
        temperature: float = 1.0,
        top_k: int | None = None,
        max_words: int = 50,
        seed: int = 0,
    ) -> list[list[str]]:
        """Sentences drawn from the model that begin (backward: end) as a text."""
        return sample(
            Scorer(self.session),
            self.tokenize(text),
            samples=samples,
            direction=direction,
            temperature=temperature,
            top_k=top_k,
            max_words=max_words,
            seed=seed,
            carry=self.state_mode == "carry",
        )

    @property
    def state(self) -> State:
        """The carried state: of each row of the calls so far, where its last sentence ended."""
        return self._carried.value

    @state.setter
    def state(self, state: State) -> None:
        self._carried.value = state.to(next(self.bilm.parameters()))

    def reset_state(self) -> None:
        """Forget the carried state: the next sentences start from zero."""
        self._carried.reset()

    def save_state(self, path: str | Path) -> None:
        """Write the carried state to a safetensors file."""
        self._check_carrying()
        write_state(self.state, Path(path))

    def load_state(self, path: str | Path) -> None:
        """Go on where `save_state` stopped."""
        self._check_carrying()
        self.state = read_state(Path(path), self.bilm.config)

    def save(
        self, target: str | Path, *, format: formats.Format = "elmokit", half: bool = False
    ) -> None:
        """Write the model to a new folder, in elmokit's format or bilm-tf's; `half` is float16."""
        formats.save(self.pretrained, target, format=format, half=half)

    def push_to_hub(
        self,
        repo: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        languages: str | Sequence[str] = (),
        licence: str = "",
        half: bool = False,
    ) -> str:
        """Upload the model to the Hugging Face Hub; return the address that `load` takes.

        The repository, "user/model", and the branch `revision` are made if they are missing.
        `private` is for a new repository; None leaves it to the account's settings. `languages`
        (ISO 639 codes) and `licence` (SPDX) go into the metadata of the model card. Needs the extra
        `elmokit[hub]`, and a token: run `hf auth login`, or set HF_TOKEN.

        Example:
            model.push_to_hub("user/elmo-swahili", languages=["sw"], licence="CC-BY-SA-4.0")
        """
        return formats.push(
            self.pretrained,
            repo,
            private=private,
            revision=revision,
            languages=languages,
            licence=licence,
            half=half,
        )

    def _stream(
        self,
        windows: Iterable[list[list[str]]],
        selection: LayerSelection,
        progress: Progress,
        *,
        batch_size: int | None = None,
    ) -> Iterator[Vectors]:
        with progress, self.session.reporting_truncated_words():
            for window in windows:
                state_before = self._carried.value
                vectors: dict[int, Vectors] = {}
                lengths = [len(sentence) + 2 for sentence in window]
                try:
                    for indices in token_batches(
                        lengths, self.tokens_per_batch, max_items=batch_size
                    ):
                        sentences = [window[index] for index in indices]
                        arrays = self._embed_batch(sentences, indices, selection)
                        vectors.update(zip(indices, arrays, strict=True))
                        progress.advance(len(indices), words=sum(map(len, sentences)))
                except BaseException:
                    self._carried.value = state_before  # all of a call is carried, or nothing
                    raise
                yield from (vectors.pop(index) for index in range(len(window)))

    def _embed_batch(
        self, sentences: list[list[str]], rows: list[int], selection: LayerSelection
    ) -> list[Vectors]:
        """The vectors of sentences computed together; `rows` are theirs of the carried state."""
        if self.state_mode == "carry":
            layers, after = self.session.run(sentences, self._carried.rows(rows))
            self._carried.update(rows, after)
            layers = selection.choose(layers, self.bilm.config)
        else:
            layers, _ = self.session.run(
                sentences, layers=selection.layers, directions=selection.directions
            )
        if self.bilm.config.aligned_layers:
            # Sentence by sentence, so that bits do not depend on the other sentences.
            with torch.no_grad(), using_threads(1):
                for row, sentence in enumerate(sentences):
                    words = slice(len(sentence) + 2)
                    layers[:, row, words] = self.bilm.align(layers[:, row, words], selection.layers)
        arrays = layers.float().cpu().numpy()
        edge = 0 if selection.boundaries else 1
        return [
            selection.combine(arrays[:, row, edge : len(sentence) + 2 - edge].copy())
            for row, sentence in enumerate(sentences)
        ]

    def _windows(self, sentences: Iterable[list[str]]) -> Iterator[list[list[str]]]:
        """Sentences to run together: of about two batches; one by one if they carry a state."""
        if self.state_mode == "carry":
            yield from ([sentence] for sentence in sentences)
            return
        for number, window in enumerate(token_windows(sentences, self.tokens_per_batch, len)):
            if number:
                trim_malloc()
            yield window

    def _tokenize_all(self, texts: Iterable[Text]) -> Iterator[list[list[str]]]:
        """The sentences of each text."""
        return (self.tokenize(text) for text in check_texts(texts))

    def _check_carrying(self) -> None:
        if self.state_mode != "carry":
            raise InputError(
                f"nothing is carried with state={self.state_mode!r}; "
                "load the model with state='carry'"
            )


def _matrix(vectors: Any) -> Vectors:  # -> (rows, dim)
    if isinstance(vectors, Tensor):
        vectors = vectors.detach().float().cpu().numpy()
    try:
        matrix = np.atleast_2d(np.asarray(vectors, np.float32))
    except (TypeError, ValueError):
        raise InputError(
            "similarity compares vectors, (rows, dim); encode() the texts first"
        ) from None
    if matrix.ndim != 2:
        raise InputError(f"vectors have the shape {matrix.shape}, expected (rows, dim)")
    return matrix
