"""The public API: load a model, embed words, encode texts, ask the language model."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from elmokit import formats
from elmokit.batching import check_sentences, check_words, in_batches, in_windows, place_words
from elmokit.config import Direction
from elmokit.errors import InputError
from elmokit.formats.native import read_state, write_state
from elmokit.formats.pretrained import Pretrained
from elmokit.generation import fill_text, next_words, previous_words, sample
from elmokit.inference import Directions, InferenceSession, Layers, LayerSelection
from elmokit.memory import trim_malloc
from elmokit.model.bilm import BiLM, State
from elmokit.model.linear import Precision
from elmokit.pooling import LayerReduction, Pooling, Reduction, Vectors
from elmokit.progress import Progress
from elmokit.results import Perplexity, Prediction, Score
from elmokit.scoring import Scorer, score
from elmokit.threads import find_device
from elmokit.tokenizers import get_tokenizer

StateWay = Literal["zero", "carry", "warm"]
Text = str | Sequence[str]  # raw, or the words of a sentence

# The state of a warm start is what is left after reading so many empty sentences.
_WARM_UP: tuple[list[str], ...] = ([],) * 10

logger = logging.getLogger(__name__)


def load(
    source: str | Path | None = None,
    weights: str | Path | None = None,
    *,
    tokenizer: str | None = None,
    state: StateWay = "zero",
    device: str | torch.device = "cpu",
    tokens_per_batch: int = 4096,
    cache_bytes: int = 2**28,
    precision: Precision = "float32",
    threads: int | None = None,
) -> "Embedder":
    """A model ready to embed: from a folder, a zip, or an options and a weights file.

    Without any of these it is the English model that ships.
    """
    return Embedder(
        formats.load(source, weights, tokenizer=tokenizer),
        state=state,
        device=device,
        tokens_per_batch=tokens_per_batch,
        cache_bytes=cache_bytes,
        precision=precision,
        threads=threads,
    )


class Embedder:
    """A pretrained model that turns sentences into the vectors of its layers.

    `state` says how a sentence starts: from `zero` (its vectors depend on it alone), from one
    `warm` state for all (what is left after `warm_up`, ten empty sentences by default), or where
    the sentence before it ended (`carry`, as the ancestors did). With `carry`, the k-th sentence
    of a call goes on where the k-th of the call before stopped; a stream is one running text.

    `precision` is that of the readers' weights on a CPU; `half` and `int8` are faster, not exact.
    `threads` is how many may compute; None for torch's own number, but no more than CPUs to use.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        *,
        state: StateWay = "zero",
        warm_up: Sequence[Sequence[str]] = _WARM_UP,
        device: str | torch.device = "cpu",
        tokens_per_batch: int = 4096,
        cache_bytes: int = 2**28,
        precision: Precision = "float32",
        threads: int | None = None,
    ) -> None:
        if state not in ("zero", "carry", "warm"):
            raise InputError(f"state is {state!r}, expected 'zero', 'carry' or 'warm'")
        if tokens_per_batch < 1:
            raise InputError(f"tokens_per_batch is {tokens_per_batch}, expected 1 or more")
        self.pretrained = pretrained
        self.precision = precision
        self.bilm: BiLM = pretrained.model.to(find_device(device)).eval().bilm
        self.state_mode = state
        self.tokens_per_batch = tokens_per_batch
        self.session = InferenceSession(
            pretrained,
            warm_up=warm_up if state == "warm" else (),
            cache_bytes=cache_bytes,
            precision=precision,
            threads=threads,
        )
        self._carried = self.session.fresh_state(0)

    @property
    def num_layers(self) -> int:
        """How many layers a word has, the context-free one included."""
        return self.bilm.config.num_layers + 1

    @property
    def dim(self) -> int:
        """The size of a layer's vector."""
        return self.bilm.config.output_size

    @property
    def cut_words(self) -> int:
        """How many words were too long and were cut, each counted when it is first met."""
        return self.session.cut_words

    def embed(
        self,
        sentences: Iterable[Sequence[str]],
        *,
        layers: Layers = "all",
        directions: Directions = "both",
        boundaries: bool = False,
        show_progress_bar: bool | None = None,
    ) -> list[Vectors]:
        """For each sentence, in the caller's order, an array (layers, words, dim).

        Layers and directions not asked for are not computed. `boundaries` keeps the vectors of
        `<S>` and `</S>`. `show_progress_bar` None shows one on a terminal when it takes long.
        """
        asked = LayerSelection.of(self.bilm.config, layers, directions, boundaries)
        listed = [*check_sentences(sentences)]
        windows = iter([listed]) if self.state_mode == "carry" else self._windows(listed)
        return [*self._stream(windows, asked, Progress(len(listed), shown=show_progress_bar))]

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
        asked = LayerSelection.of(self.bilm.config, layers, directions, boundaries)
        checked = check_sentences(sentences)
        windows = ([s] for s in checked) if self.state_mode == "carry" else self._windows(checked)
        return self._stream(windows, asked, Progress(None, shown=show_progress_bar))

    def encode(
        self,
        texts: Iterable[Text],
        *,
        layers: LayerReduction = "mean",
        pooling: Pooling = "mean",
        show_progress_bar: bool | None = None,
    ) -> Vectors:
        """One vector a text, (texts, dim): its words' vectors, pooled; zero for one without words.

        A text is raw (it is split into sentences and words as the model's text was) or a list of
        words. `layers` are averaged ("mean"), chosen ("top" or a number), put end to end ("concat",
        dim grows), or mixed by a ScalarMix.
        """
        reduction = Reduction.of(layers, pooling)
        split_texts = [*self._split_texts(texts)]
        stream = self.embed_stream(
            (sentence for text in split_texts for sentence in text),
            layers=reduction.layers,
            show_progress_bar=show_progress_bar,
        )
        dim = self.dim * (self.num_layers if layers == "concat" else 1)
        encoded = np.zeros((len(split_texts), dim), np.float32)
        for place, text in enumerate(split_texts):
            encoded[place] = reduction.of_text(islice(stream, len(text)), dim)
        return encoded

    def tokenize(self, text: Text) -> list[list[str]]:
        """The sentences of a raw text as lists of words; a list of words is one sentence."""
        if not isinstance(text, str):
            return [check_words(text, "text")[0]]
        way = get_tokenizer(self.pretrained.tokenizer)
        return [way.tokenize(sentence) for sentence in way.split_sentences(text)]

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
            self._oracle(),
            (sentence for text in self._split_texts(texts) for sentence in text),
            state="carry" if self.state_mode == "carry" else "zero",
            tokens_per_batch=self.tokens_per_batch,
            show_progress_bar=show_progress_bar,
        )

    def next_words(
        self, text: Text, *, k: int = 10, special_tokens: bool = False
    ) -> list[Prediction]:
        """The k likeliest words after a text, raw or a list of words."""
        return next_words(
            self._oracle(),
            self.tokenize(text),
            k=k,
            special_tokens=special_tokens,
            carry=self.state_mode == "carry",
        )

    def previous_words(
        self, text: Text, *, k: int = 10, special_tokens: bool = False
    ) -> list[Prediction]:
        """The k likeliest words before a text, raw or a list."""
        return previous_words(
            self._oracle(), self.tokenize(text), k=k, special_tokens=special_tokens
        )

    def fill(self, text: Text, *, k: int = 10) -> list[list[Prediction]]:
        """For each `___` of a text, the k words that fit best from both sides."""
        return fill_text(self._oracle(), text, self.tokenize, k=k)

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
            self._oracle(),
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
        """What is carried: of each row of the calls so far, where its last sentence ended."""
        return self._carried

    @state.setter
    def state(self, state: State) -> None:
        self._carried = state.to(next(self.bilm.parameters()))

    def reset_state(self) -> None:
        """Forget what was carried: the next sentences start from zero."""
        self._carried = self.session.fresh_state(0)

    def save_state(self, path: str | Path) -> None:
        """What is carried, kept in a safetensors file."""
        self._refuse_unless_carrying()
        write_state(self._carried, Path(path))

    def load_state(self, path: str | Path) -> None:
        """Go on where `save_state` stopped."""
        self._refuse_unless_carrying()
        self.state = read_state(Path(path), self.bilm.config)

    def save(
        self, target: str | Path, *, format: formats.Format = "elmokit", half: bool = False
    ) -> None:
        """The model as a new folder, in elmokit's format or bilm-tf's; `half` rounds to float16."""
        formats.save(self.pretrained, target, format=format, half=half)

    def _stream(
        self, windows: Iterable[list[list[str]]], asked: LayerSelection, progress: Progress
    ) -> Iterator[Vectors]:
        cut_before = self.cut_words
        with progress:
            for window in windows:
                carried_before = self._carried
                vectors: dict[int, Vectors] = {}
                try:
                    for places in in_batches(window, self.tokens_per_batch):
                        sentences = [window[place] for place in places]
                        arrays = self._embed_batch(sentences, places, asked)
                        vectors.update(zip(places, arrays, strict=True))
                        progress.advance(sentences=len(places), words=sum(map(len, sentences)))
                except BaseException:
                    self._carried = carried_before  # all of a call is carried, or nothing
                    raise
                yield from (vectors.pop(place) for place in range(len(window)))
        if cut := self.cut_words - cut_before:
            logger.warning("%d words were too long for the model and were cut", cut)

    def _embed_batch(
        self, sentences: list[list[str]], places: list[int], asked: LayerSelection
    ) -> list[Vectors]:
        """The vectors of sentences that are read together; `places` are their rows of the state."""
        placed = place_words(sentences)
        if self.state_mode == "carry":
            missing = max(places) + 1 - self._carried.num_sentences
            if missing > 0:
                self._carried = self._carried.followed_by(self.session.fresh_state(missing))
            rows = torch.tensor(places, device=self._carried.hidden.device)
            layers, after = self.session.read(placed, self._carried.rows(rows))
            self._carried = self._carried.with_rows(rows, after.to(self._carried.hidden))
            layers = asked.choose(layers, self.bilm.config)
        else:
            layers, _ = self.session.read(placed, layers=asked.layers, directions=asked.directions)
        arrays = layers.float().cpu().numpy()
        edge = 0 if asked.boundaries else 1
        return [
            arrays[:, row, edge : len(sentence) + 2 - edge].copy()
            for row, sentence in enumerate(sentences)
        ]

    def _oracle(self) -> Scorer:
        return Scorer(self.session)

    def _split_texts(self, texts: Iterable[Text]) -> Iterator[list[list[str]]]:
        """The sentences of each text."""
        if isinstance(texts, str):
            raise TypeError("texts is one string, expected a list of texts: [text]")
        for place, text in enumerate(texts):
            raw = isinstance(text, str)
            yield self.tokenize(text if raw else check_words(text, f"text {place}")[0])

    def _refuse_unless_carrying(self) -> None:
        if self.state_mode != "carry":
            raise InputError(
                f"nothing is carried with state={self.state_mode!r}; "
                "load the model with state='carry'"
            )

    def _windows(self, sentences: Iterable[list[str]]) -> Iterator[list[list[str]]]:
        for place, window in enumerate(in_windows(sentences, self.tokens_per_batch, len)):
            if place:
                trim_malloc()
            yield window
