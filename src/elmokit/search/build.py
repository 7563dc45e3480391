"""Files of text become an index; a build that was killed goes on where it stopped."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.files import TextFile, find_files
from elmokit.inference import LayerSelection
from elmokit.progress import Progress
from elmokit.search.index import Index, in_parts
from elmokit.search.nearest import Kind
from elmokit.search.passages import Passage, Unit, read_passages
from elmokit.search.place import begin_site
from elmokit.search.recipe import (
    Begun,
    Layers,
    PassagePooling,
    Recipe,
    read_vectors,
    state_of,
)
from elmokit.search.site import Site
from elmokit.whitening import Way, estimate


def build_index(
    embedder: Embedder,
    names: Iterable[str],
    out: str | Path,
    *,
    unit: Unit = "sentences",
    layers: Layers | None = None,
    pooling: PassagePooling | None = None,
    whitening: Way = "zca",
    kind: Kind | Literal["auto"] = "auto",
    show_progress_bar: bool | None = None,
) -> Index:
    """The index of the passages in files, made in a new folder or at an address of PostgreSQL.

    The vectors are kept part by part before anything is made of them: a build that was killed and
    is called again embeds only what is missing, and ends with the same numbers.

    If `layers` and `pooling` are not said, passages have the mean of their words' vectors in layer
    0, rare words counting more where the model has a vocabulary, which finds more than anything
    else that was tried (docs/search.md); words in context have the mean of all layers.
    """
    files = find_files(names)
    if layers is None:
        layers = "mean" if unit == "words" else 0
    if pooling is None:
        known = embedder.pretrained.vocabulary is not None
        pooling = "rare" if known and unit != "words" else "mean"
    recipe = Recipe(
        embedder.pretrained.fingerprint(), embedder.pretrained.tokenizer, unit, layers, pooling,
        whitening, kind, state_of(embedder),
    )  # fmt: skip
    recipe.check_model(embedder, str(out))
    chosen = recipe.reduction.layers
    LayerSelection.of(
        embedder.bilm.config, chosen, "both", boundaries=False
    )  # refuses what is not there
    begun = Begun(recipe, [*map(_describe, files)], embedder.precision)
    dim = recipe.dim(embedder)
    with begin_site(out, begun, dim=dim) as site:
        _embed(site, files, recipe=recipe, embedder=embedder, show_progress_bar=show_progress_bar)
        if not site.kept().vectors:
            site.remove()
            named = ", ".join(file.name for file in files)
            raise InputError(f"{named}: no word there to make an index of")
        site.finish(recipe, estimate(site.parts(), dim=dim, way=whitening))
    return Index.open(out, embedder)


def _embed(
    site: Site,
    files: Sequence[TextFile],
    *,
    recipe: Recipe,
    embedder: Embedder,
    show_progress_bar: bool | None,
) -> None:
    """Keep the passages and their vectors, part by part; those that are there are passed over."""
    kept = site.kept()
    passages = read_passages(files, split=recipe.split, unit=recipe.unit)
    _pass_over(passages, kept.passages, kept.last_text, site.name)
    with Progress(None, unit="passages", shown=show_progress_bar, done=kept.passages) as shown:
        for part in in_parts(passages, embedder):
            rows, vectors = read_vectors(recipe, embedder, part)
            site.keep(part, rows, vectors.astype(np.float16))
            shown.advance(sentences=len(part), words=sum(len(p.words) for p in part))


def _pass_over(passages: Iterator[Passage], done: int, last_text: str, name: str) -> None:
    """Read past what is there; refuse a text that is another one, as stdin's may be."""
    last = deque(islice(passages, done), maxlen=1)
    if done and [passage.text for passage in last] != [last_text]:
        raise InputError(
            f"{name}: passage {done} is not what it was when the build was begun; give the same "
            "text, or remove what was begun"
        )


def _describe(file: TextFile) -> str:
    return f"{file.name}, {file.size} bytes, changed at {file.modified}"
