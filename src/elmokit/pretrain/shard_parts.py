"""The sentences and word counts of one range of lines.

Parts are made by processes that share nothing but the folder; nothing here imports torch.
"""

import json
from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from elmokit.atomic import write_atomically
from elmokit.pretrain.bad_lines import Fault, paragraphs_of
from elmokit.pretrain.line_ranges import Block
from elmokit.tokenizers import Tokenizer, get_tokenizer
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN

# The first ids of a part: the end of a sentence, `<UNK>`, and what would be taken for something
# else if it stood in a vocabulary.
END_OF_SENTENCE = "\n"
NOT_WORDS = (SENTENCE_BEGIN, SENTENCE_END, "!!!MAXTERMID")
FIRST_FORMS = (END_OF_SENTENCE, UNKNOWN, *NOT_WORDS)


@dataclass(frozen=True)
class Part:
    """What a block became."""

    ids: npt.NDArray[np.int32]  # of forms; after each sentence 0
    forms: list[str]  # FIRST_FORMS and the words, in the order in which they came
    counts: npt.NDArray[np.int64]  # of forms
    held_out: list[str]  # a sentence each, words between spaces
    replaced: int  # words of NOT_WORDS that became <UNK> in held-out sentences
    faults: list[Fault]

    @classmethod
    def read(cls, path: Path) -> "Part":
        """The part of a file."""
        with np.load(path) as stored:
            about = json.loads(stored["about"].tobytes())
            return cls(
                ids=stored["ids"],
                forms=stored["forms"].tobytes().decode().split("\0"),
                counts=stored["counts"],
                held_out=about["held_out"],
                replaced=about["replaced"],
                faults=[Fault(**fault) for fault in about["faults"]],
            )

    @staticmethod
    def read_faults(path: Path) -> list[Fault]:
        """What was wrong with the block of a part."""
        with np.load(path) as stored:
            return [Fault(**fault) for fault in json.loads(stored["about"].tobytes())["faults"]]

    def write(self, path: Path) -> None:
        """A file, there when it is whole."""
        about = {
            "held_out": self.held_out,
            "replaced": self.replaced,
            "faults": [asdict(fault) for fault in self.faults],
        }

        def save(file: BinaryIO) -> None:
            arrays: dict[str, Any] = {
                "ids": self.ids,
                "forms": np.frombuffer("\0".join(self.forms).encode(), np.uint8),
                "counts": self.counts,
                "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
            }
            np.savez(file, **arrays)

        write_atomically(path, save)


def make_part(block: Block, path: Path, *, split: str, wrapped: bool) -> int:
    """Write the part that a block becomes; the number of its words."""
    part = part_of(block, split=split, wrapped=wrapped)
    part.write(path)
    return int(part.counts[1:].sum())


def part_of(block: Block, *, split: str, wrapped: bool) -> Part:
    """The part that a block becomes."""
    way, spaced = get_tokenizer(split), split != "characters"
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    for form in FIRST_FORMS:
        numbers[form]
    ids, held_out, replaced = array("i"), list[str](), 0
    faults: list[Fault] = []
    for stretch in block.stretches:
        for text in paragraphs_of(stretch, faults.append, spaced=spaced, wrapped=wrapped):
            for words in _sentences(way, text):
                if stretch.held_out:
                    replaced += sum(word in NOT_WORDS for word in words)
                    held_out.append(" ".join(UNKNOWN if w in NOT_WORDS else w for w in words))
                else:
                    ids.extend(map(numbers.__getitem__, words))
                    ids.append(0)
    faults += [Fault(file, 0, "empty") for file in block.empty_files]
    ids_ = np.frombuffer(ids, np.int32) if ids else np.zeros(0, np.int32)
    return Part(
        ids_, list(numbers), np.bincount(ids_, minlength=len(numbers)), held_out, replaced, faults
    )


def _sentences(way: Tokenizer, text: str) -> Iterator[list[str]]:
    for sentence in way.split_sentences(text):
        if words := way.tokenize(sentence):
            yield words
