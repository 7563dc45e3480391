"""Files of text become an index; a build that was killed goes on where it stopped."""

import json
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from elmokit.embedder import Embedder
from elmokit.errors import InputError, OutputError
from elmokit.explore.catalog import Catalog
from elmokit.explore.index import CATALOG, RECIPE, STORE, WHITENING, Index, claim, in_parts
from elmokit.explore.nearest import FaissStore, Kind, choose_kind, load_faiss, sample_rows
from elmokit.explore.passages import Passage, Unit, read_passages
from elmokit.explore.recipe import Layers, Recipe, read_vectors
from elmokit.explore.whitening import Way, Whitening, estimate
from elmokit.formats.record import read_record
from elmokit.plan import Asked
from elmokit.pooling import Pooling, Reduction, Vectors
from elmokit.progress import Progress
from elmokit.text.files import TextFile, find_files
from elmokit.whole import write_whole

_BEGUN, _PARTS = "building.json", "parts"


def build_index(
    embedder: Embedder,
    names: Iterable[str],
    out: str | Path,
    *,
    unit: Unit = "sentences",
    layers: Layers = "mean",
    pooling: Pooling = "mean",
    whitening: Way = "zca",
    kind: Kind | Literal["auto"] = "auto",
    progress: bool | None = None,
) -> Index:
    """The index of the passages in files, made in a new folder.

    The vectors are kept part by part before anything is made of them: a build that was killed and
    is called again embeds only what is missing, and ends with the same numbers.
    """
    out, files = Path(out), find_files(names)
    load_faiss()  # better missing now than after hours
    model, split = embedder.pretrained.fingerprint(), embedder.pretrained.split
    recipe = Recipe(model, split, unit, layers, pooling, whitening, kind)
    recipe.check_model(embedder, out)
    chosen = Reduction.of(layers, pooling).layers
    Asked.of(embedder.bilm.config, chosen, "both", boundaries=False)  # refuses what is not there
    _make_folder(out)
    with claim(out):
        _begin(out, _Begun(recipe, [*map(_describe, files)]))
        catalog = Catalog.create(out / CATALOG)
        try:
            _embed(out, catalog, files, recipe=recipe, embedder=embedder, progress=progress)
            _, vectors, _ = catalog.count()
            if not vectors:
                shutil.rmtree(out)
                named = ", ".join(file.name for file in files)
                raise InputError(f"{named}: no word there to make an index of")
        finally:
            catalog.close()
        found = estimate(_parts(out), dim=recipe.dim(embedder), way=whitening)
        found.write(out / WHITENING)
        store = _fill(out, found, kind=kind, rows=vectors)
        store.save()
        replace(recipe, kind=store.kind).write(out / RECIPE)  # from now on it is an index
        shutil.rmtree(out / _PARTS)
        (out / _BEGUN).unlink()
    return Index.open(out, embedder)


@dataclass(frozen=True)
class _Begun:
    """What a build was begun with, so that it goes on with the same."""

    recipe: Recipe
    files: list[str]


def _begin(out: Path, begun: _Begun) -> None:
    """Leave word of what is built, or check that it is what was begun."""
    if (out / RECIPE).exists():
        raise OutputError(f"{out}: an index already; add to it, or name another folder")
    if not (out / _BEGUN).exists():
        if any(not path.name.startswith(".") for path in out.iterdir()):
            raise OutputError(f"{out}: not empty; name a new folder")
        text = json.dumps(asdict(begun))
        write_whole(out / _BEGUN, lambda file: file.write(text.encode()))
    elif read_record(out / _BEGUN, _Begun, "what a build leaves") != begun:
        raise InputError(
            f"{out}: its build was begun with other files, options or another model; repeat those, "
            "or remove the folder"
        )
    (out / _PARTS).mkdir(exist_ok=True)


def _embed(
    out: Path,
    catalog: Catalog,
    files: Sequence[TextFile],
    *,
    recipe: Recipe,
    embedder: Embedder,
    progress: bool | None,
) -> None:
    """Keep the passages and their vectors, part by part; those that are there are passed over."""
    done, first, _ = catalog.count()
    passages = read_passages(files, split=recipe.split, unit=recipe.unit)
    _pass_over(passages, catalog, done, out)
    with Progress(None, unit="passages", shown=progress, done=done) as shown:
        for part in in_parts(passages, embedder):
            rows, vectors = read_vectors(recipe, embedder, part)
            _write_part(out, first, vectors)
            catalog.add(part, rows, first=first)
            catalog.commit()
            first += len(rows)
            shown.advance(sentences=len(part), words=sum(len(p.words) for p in part))


def _pass_over(passages: Iterator[Passage], catalog: Catalog, done: int, out: Path) -> None:
    """Read past what is there; refuse a text that is another one, as stdin's may be."""
    last = deque(islice(passages, done), maxlen=1)
    if [passage.text for passage in last] != catalog.last_text():
        raise InputError(
            f"{out}: passage {done} is not what it was when the build was begun; give the same "
            "text, or remove the folder"
        )


def _write_part(out: Path, first: int, vectors: Vectors) -> None:
    """Keep vectors under the id of the first; one left by a killed build is written over."""
    half = vectors.astype(np.float16)
    write_whole(out / _PARTS / f"{first:012}.npy", lambda file: np.save(file, half))


def _parts(out: Path) -> Iterator[np.ndarray[tuple[int, int], np.dtype[np.float16]]]:
    for path in sorted((out / _PARTS).glob("[0-9]*.npy")):
        yield np.load(path, allow_pickle=False)


def _fill(
    out: Path, whitening: Whitening, *, kind: Kind | Literal["auto"], rows: int
) -> FaissStore:
    """The store of all parts."""
    chosen = choose_kind(rows) if kind == "auto" else kind
    wanted = sample_rows(chosen, rows)
    stride = rows // wanted  # evenly from all of the corpus
    sample = np.concatenate([part[::stride] for part in _parts(out)])
    store = FaissStore.create(out / STORE, kind=chosen, sample=whitening.apply(sample), rows=rows)
    for part in _parts(out):
        store.add(whitening.apply(part))
    return store


def _describe(file: TextFile) -> str:
    return f"{file.name}, {file.size} bytes, changed at {file.modified}"


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{out}: cannot be written ({error.strerror})") from None
