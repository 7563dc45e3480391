"""Raganato's XML and its gold keys become sentences with senses of WordNet."""

from pathlib import Path
from xml.parsers import expat

from elmokit.errors import FormatError
from elmokit.tasks.data.example import Instance, Sensed
from elmokit.tasks.data.source import Line, lines_of, some
from elmokit.tokenizers import split_on_whitespace


def read_raganato(data: str | Path, gold: str | Path) -> list[Sensed]:
    """The sentences of `NAME.data.xml` with the senses of `NAME.gold.key.txt`.

    A word of several (`<wf>New York</wf>`) is cut at its spaces. Every instance has a line of gold
    and every line of gold an instance.
    """
    keys = _read_gold(gold)
    reader = _Reader(keys)
    line = Line(str(data), 1, "")
    try:
        for line in lines_of(data):
            reader.parse(line)
        reader.end()
    except expat.ExpatError as error:
        raise FormatError(
            f"{line.file}, line {error.lineno}: not well-formed XML "
            f"({expat.ErrorString(error.code)}); was the file cut short?"
        ) from None
    for instance, (_, from_line) in keys.items():
        if instance not in reader.found:
            raise from_line.wrong(
                f"{instance} is not in {line.file}, expected an instance of that id; do the "
                "files belong together?"
            )
    return some(reader.sentences, data, "the <sentence>s of Raganato's XML")


def _read_gold(path: str | Path) -> dict[str, tuple[tuple[str, ...], Line]]:
    keys: dict[str, tuple[tuple[str, ...], Line]] = {}
    for line in lines_of(path):
        if line.blank:
            continue
        instance, *senses = split_on_whitespace(line.text)
        if not senses or not all("%" in sense for sense in senses):
            raise line.wrong(f"{line.text[:60]!r}, expected an id and keys as say%2:32:00::")
        if instance in keys:
            before = keys[instance][1].number
            raise line.wrong(f"{instance} is there twice, expected once; it is in line {before}")
        keys[instance] = tuple(senses), line
    return keys


class _Reader:
    """What stands in the XML so far."""

    def __init__(self, keys: dict[str, tuple[tuple[str, ...], Line]]) -> None:
        self.sentences: list[Sensed] = []
        self.found: set[str] = set()
        self._keys = keys
        self._sentence: str | None = None
        self._within: str | None = None  # which element of words
        self._words: list[str] = []
        self._instances: list[Instance] = []
        self._text: list[str] = []
        self._line = Line("", 0, "")
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text_part
        self._parser.EntityDeclHandler = self._entity
        self._values: dict[str, str] = {}

    def parse(self, line: Line) -> None:
        self._line = line
        self._parser.Parse(line.text + "\n")

    def end(self) -> None:
        self._parser.Parse("", True)

    def _start(self, name: str, values: dict[str, str]) -> None:
        if name == "sentence":
            self._sentence = values.get("id", str(len(self.sentences)))
            self._words, self._instances = [], []
        elif name in ("wf", "instance"):
            if self._sentence is None:
                raise self._line.wrong(f"<{name}> in no sentence, expected <sentence> around it")
            if self._within is not None:
                raise self._line.wrong(f"<{name}> within <{self._within}>, expected words alone")
            self._within = name
            self._values = values
            self._text = []

    def _end(self, name: str) -> None:
        if name == "sentence":
            if self._words:
                words, instances = tuple(self._words), tuple(self._instances)
                self.sentences.append(Sensed(str(self._sentence), words, instances))
            self._sentence = None
        elif name in ("wf", "instance"):
            self._within = None
            first = len(self._words)
            self._words += "".join(self._text).split()
            if len(self._words) == first:
                raise self._line.wrong(f"an empty <{name}>, expected a word")
            if name == "instance":
                self._instances.append(self._instance(first))

    def _instance(self, first: int) -> Instance:
        for name in ("id", "lemma", "pos"):
            if not self._values.get(name):
                raise self._line.wrong(f"<instance> without {name}, expected {name}=…")
        value = self._values
        if value["id"] not in self._keys:
            raise self._line.wrong(
                f"instance {value['id']} has no line in the gold file, expected one; do the files "
                "belong together?"
            )
        if value["id"] in self.found:
            raise self._line.wrong(f"instance {value['id']} is there twice, expected once")
        self.found.add(value["id"])
        keys, _ = self._keys[value["id"]]
        last = len(self._words) - 1
        return Instance(value["id"], first, last, value["lemma"], value["pos"], keys)

    def _text_part(self, text: str) -> None:
        self._text.append(text)

    def _entity(self, name: str, *_: object) -> None:
        # A few entities that name one another can stand for gigabytes.
        raise self._line.wrong(f"declares the entity {name!r}, expected plain XML without any")
