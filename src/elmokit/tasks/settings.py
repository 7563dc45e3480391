"""Settings of a supervised run: features of words, size of the head, training."""

from dataclasses import dataclass
from typing import Literal

from elmokit.errors import ConfigError
from elmokit.tokenizers import check_tokenizer
from elmokit.toml_settings import check_ranges, setting


@dataclass(frozen=True)
class TaskSettings:
    """All settings of a supervised run; each task has defaults of its own."""

    elmo: Literal["none", "input", "output", "both"] = setting(
        "where ELMo's weighted layers are added: none is the baseline", "input"
    )
    layers: tuple[int, ...] = setting("layers to weigh, such as [0, 2]; [] for all", ())
    l2: float = setting("L2 penalty λ‖w‖² on the layer weights", 0.001, ">= 0")
    elmo_dropout: float = setting("dropout of the weighted layers", 0.5, "[0, 1)")
    by_sentence: bool = setting("run the biLM on each sentence of a text by itself", True)
    finetune: bool = setting("train the biLM too, instead of keeping it frozen", False)

    tokenizer: str = setting("tokenizer of raw text (files, predictions); empty: automatic", "")
    word_embedding_size: int = setting(
        "size of trained word embeddings; 0 for none", 100, ">= 0", maximum=2**20
    )
    word_vectors: str = setting("file of word vectors to start from, as word2vec or GloVe text", "")
    freeze_word_vectors: bool = setting("do not train the word vectors of that file", False)
    character_filters: int = setting(
        "filters of each width over a word's characters; 0: none", 32, ">= 0", maximum=2**20
    )

    hidden_size: int = setting(
        "hidden size of the head's LSTMs, each direction", 128, "> 0", maximum=2**20
    )
    num_layers: int = setting("layers of the head's BiLSTM encoder", 1, "> 0", maximum=100)
    dropout: float = setting("dropout of the head", 0.5, "[0, 1)")
    crf: bool = setting("choose the tags of a sentence together by a CRF", True)

    epochs: int = setting("passes over the training examples", 15, "> 0")
    patience: int = setting("stop after so many epochs without improvement; 0: never", 0, ">= 0")
    words_per_batch: int = setting("words of a batch, at most", 1000, "> 0")
    learning_rate: float = setting("learning rate at first; it falls linearly to 0", 0.002, "> 0")
    weight_decay: float = setting("weight decay of AdamW", 0.0, ">= 0")
    max_grad_norm: float = setting("gradients are clipped to this norm", 5.0, "> 0")
    seed: int = setting("seed of every random choice", 0, ">= 0", maximum=2**63 - 1)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.elmo == "none" and (self.finetune or self.layers):
            raise ConfigError("elmo is 'none': there are no layers to choose, no biLM to fine-tune")
        if len(set(self.layers)) < len(self.layers):
            raise ConfigError(f"layers is {self.layers}, expected each once")
        if self.tokenizer:
            check_tokenizer(self.tokenizer)
        own_features = self.word_embedding_size or self.character_filters
        if self.elmo in ("none", "output") and not own_features:
            raise ConfigError(
                f"elmo is {self.elmo!r}: word_embedding_size and character_filters cannot both be 0"
            )
        if self.freeze_word_vectors and not self.word_vectors:
            raise ConfigError("freeze_word_vectors is true, but no word_vectors are given")
        if self.freeze_word_vectors and self.weight_decay:
            raise ConfigError("freeze_word_vectors is true: weight_decay would shrink them; set 0")

    @property
    def elmo_positions(self) -> tuple[str, ...]:
        """Where ELMo is added: to the "input" of the head's encoder, to its "output"."""
        return {"none": (), "both": ("input", "output")}.get(self.elmo, (self.elmo,))
