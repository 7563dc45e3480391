"""Speed of a straightforward biLM trainer in plain PyTorch, for comparison.

    python benchmarks/plain_trainer.py FOLDER [--size S] [--steps 100]

What one writes first in PyTorch: every token through the character CNN, the full softmax,
`nn.LSTM(proj_size)`, which cannot clip, and one direction after the other.
"""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import contest


def main() -> None:
    chosen = contest.command_line()
    torch.manual_seed(chosen.seed)
    words = (chosen.folder / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    forward = windows(chosen.folder / "train.txt", words, chosen.seed, backward=False)
    backward = windows(chosen.folder / "train.txt", words, chosen.seed + 1, backward=True)
    model = BiLM(len(words), **contest.SIZES[chosen.size])
    optimizer = torch.optim.Adagrad(
        model.parameters(),
        lr=contest.LEARNING_RATE,
        initial_accumulator_value=contest.INITIAL_ACCUMULATOR,
    )
    losses, ended = [], []
    states = [None, None]
    for _ in range(chosen.steps):
        loss, states = model([next(forward), next(backward)], states)
        optimizer.zero_grad()
        (loss * contest.SEQUENCE_LENGTH).backward()
        nn.utils.clip_grad_norm_(model.parameters(), contest.MAX_GRAD_NORM)
        optimizer.step()
        losses.append(loss.item())
        ended.append(time.perf_counter())
    contest.report(losses, ended)


class BiLM(nn.Module):
    """Encoder and softmax shared by the LSTMs of both directions."""

    def __init__(self, words: int, *, projection_size: int, cell_size: int, filters: list):
        super().__init__()
        self.encoder = Encoder(projection_size, filters)
        self.lstms = nn.ModuleList(LSTMStack(projection_size, cell_size) for _ in range(2))
        self.softmax = nn.Linear(projection_size, words)
        nn.init.normal_(self.softmax.weight, std=projection_size**-0.5)
        nn.init.zeros_(self.softmax.bias)

    def forward(self, batches: list, states: list) -> tuple[Tensor, list]:
        losses, last_states = [], []
        for lstm, (characters, targets), state in zip(self.lstms, batches, states, strict=True):
            outputs, last = lstm(self.encoder(characters), state)
            losses.append(F.cross_entropy(self.softmax(outputs).flatten(0, 1), targets.flatten()))
            last_states.append(last)
        return 0.5 * (losses[0] + losses[1]), last_states


class Encoder(nn.Module):
    """Characters of each token, to its vector."""

    def __init__(self, projection_size: int, filters: list):
        super().__init__()
        features = sum(made for _, made in filters)
        self.characters = nn.Embedding(261, contest.CHARACTER_EMBEDDING_SIZE)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(contest.CHARACTER_EMBEDDING_SIZE, made, seen) for seen, made in filters
        )
        self.highways = nn.ModuleList(
            nn.Linear(features, 2 * features) for _ in range(contest.HIGHWAY_LAYERS)
        )
        self.projection = nn.Linear(features, projection_size)
        nn.init.uniform_(self.characters.weight, -1, 1)
        for convolution in self.convolutions:
            nn.init.uniform_(convolution.weight, -0.05, 0.05)
            nn.init.zeros_(convolution.bias)
        for layer in [*self.highways, self.projection]:
            nn.init.normal_(layer.weight, std=features**-0.5)
            nn.init.zeros_(layer.bias)
        for highway in self.highways:
            nn.init.constant_(highway.bias[features:], -2)

    def forward(
        self, characters: Tensor
    ) -> Tensor:  # (sequences, steps, characters) -> (…, projection_size)
        sequences, steps, _ = characters.shape
        spelt = self.characters(characters.flatten(0, 1)).transpose(1, 2)
        features = [F.relu(convolution(spelt).amax(2)) for convolution in self.convolutions]
        vectors = torch.cat(features, 1)  # (sequences * steps, features)
        for highway in self.highways:
            made, gate = highway(vectors).chunk(2, 1)
            gate = torch.sigmoid(gate)
            vectors = gate * F.relu(made) + (1 - gate) * vectors
        return self.projection(vectors).view(sequences, steps, -1)


class LSTMStack(nn.Module):
    """LSTM layers, the upper ones with a skip connection; dropout before each and after."""

    def __init__(self, projection_size: int, cell_size: int):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.LSTM(projection_size, cell_size, proj_size=projection_size, batch_first=True)
            for _ in range(contest.NUM_LAYERS)
        )
        for name, weight in self.layers.named_parameters():
            if "weight" in name:
                nn.init.xavier_uniform_(weight)
            else:
                nn.init.zeros_(weight)
                if "bias_ih" in name:
                    nn.init.ones_(weight[cell_size : 2 * cell_size])  # the forget gate

    def forward(self, vectors: Tensor, states: list | None) -> tuple[Tensor, list]:
        last = []
        for index, layer in enumerate(self.layers):
            vectors = F.dropout(vectors, contest.DROPOUT)
            outputs, state = layer(vectors, states[index] if states else None)
            vectors = outputs + vectors if index else outputs
            last.append(tuple(part.detach() for part in state))
        return F.dropout(vectors, contest.DROPOUT), last


def windows(path: Path, words: list[str], seed: int, *, backward: bool) -> Iterator[tuple]:
    """Characters and targets of one batch after another; sequences take sentences in turn."""
    numbers = {word: number for number, word in enumerate(words)}
    sentences = stream(path, seed, backward=backward)
    sequences: list[list] = [[] for _ in range(contest.BATCH_SIZE)]
    while True:
        for sequence in sequences:
            while len(sequence) < contest.SEQUENCE_LENGTH:
                sequence.extend(pairwise(next(sentences)))
        batch = [sequence[: contest.SEQUENCE_LENGTH] for sequence in sequences]
        for sequence in sequences:
            del sequence[: contest.SEQUENCE_LENGTH]
        yield (
            torch.tensor([[spell(word) for word, _ in sequence] for sequence in batch]),
            torch.tensor([[numbers.get(word, 2) for _, word in sequence] for sequence in batch]),
        )


def stream(path: Path, seed: int, *, backward: bool) -> Iterator[list[str]]:
    """Sentences with their boundary tokens, in a new order each time round."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    chance = torch.Generator().manual_seed(seed)
    while True:
        for index in torch.randperm(len(lines), generator=chance).tolist():
            sentence = ["<S>", *lines[index].split(" "), "</S>"]
            yield sentence[::-1] if backward else sentence


def spell(word: str) -> list[int]:
    """Its bytes between two boundary characters, padded: bilm-tf's numbers."""
    marks = {"<S>": [256], "</S>": [257]}
    inner = marks.get(word, word.encode()[: contest.MAX_CHARACTERS - 2])
    spelt = [258, *inner, 259]
    return spelt + [260] * (contest.MAX_CHARACTERS - len(spelt))


if __name__ == "__main__":
    main()
