"""The explorer page as a folder of files, with the model inside, for any static host."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import elmokit
from elmokit.atomic import new_directory
from elmokit.embedder import Embedder
from elmokit.errors import InputError, OutputError
from elmokit.onnx_export import export_onnx
from elmokit.search import highlight, lexical, ranking
from elmokit.search.index import Index
from elmokit.search.lexical import MOST_FREQUENT, NO_STEMMER, get_stemmer, stop_words_of
from elmokit.search.passage_vectors import embed_passages
from elmokit.search.passages import Passage
from elmokit.search.ranking import WordVectors
from elmokit.server.onnxruntime_web import GLUE, RUNTIME, WASM, OnnxruntimeWeb
from elmokit.server.schemas import InfoResponse, LearnedLayerWeights
from elmokit.tokenizers import tokenizer_rules
from elmokit.whitening import Whitening

# The version of what browser_backend.js reads.
_FORMAT = 1

_PAGE = Path(__file__).parent / "page"
_JAVASCRIPT_FOLDERS = (
    Path(__file__).parent / "elmokit-js",  # in an installed package
    Path(__file__).parents[3] / "packages" / "elmokit-js",  # in the sources
)

_MAX_PASSAGES = 10_000  # all of them are compared with a query

_POOLINGS = ("mean", "idf", "max", "first", "last")  # those of passage_search.js

# What passage_search.js ranks and highlights with.
_SEARCH_SETTINGS = {
    "bm25_weight": ranking.BM25_WEIGHT,
    "word_match_weight": ranking.WORD_MATCH_WEIGHT,
    "cosine_weight": ranking.COSINE_WEIGHT,
    "min_candidates": ranking.MIN_CANDIDATES,
    "saturation": lexical.SATURATION,
    "length_share": lexical.LENGTH_SHARE,
    "min_cosine": highlight.MIN_COSINE,
    "share_of_cosine": highlight.SHARE_OF_COSINE,
}

# WebAssembly needs 'wasm-unsafe-eval', which does not allow to evaluate JavaScript.
_POLICY = (
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; img-src data:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)

_LICENSES = """\
This page was made with elmokit {version}. Its files, in the folders page and elmokit-js, are under
the Apache License 2.0.

The model, in the folder model: {licence}

The folder onnxruntime is of onnxruntime-web {onnxruntime}, under the MIT License:

Copyright (c) Microsoft Corporation

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or
substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


@dataclass(frozen=True)
class _Files:
    """Where the files of a page are, relative to its folder, and their sizes where they matter."""

    folder: Path

    def write(self, path: str, content: bytes | str) -> str:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def write_json(self, path: str, content: object) -> str:
        return self.write(path, json.dumps(content, ensure_ascii=False, separators=(",", ":")))

    def name_by_content(self, path: str) -> dict[str, Any]:
        """Rename a large file so that its name says what is in it: browsers keep it for long."""
        source = self.folder / path
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
        renamed = source.with_name(f"{source.stem}-{digest}{source.suffix}")
        source.rename(renamed)
        return {
            "path": renamed.relative_to(self.folder).as_posix(),
            "bytes": renamed.stat().st_size,
        }


def write_page(
    embedder: Embedder,
    folder: str | Path,
    *,
    index: Index,
    onnxruntime: OnnxruntimeWeb,
    layer_weights: Sequence[LearnedLayerWeights] = (),
    int8: bool = True,
) -> None:
    """Write the page with the model inside to a new folder; any static host can serve it.

    Searches are of the passages of `index`, at most 10,000. `onnxruntime` is what
    `find_onnxruntime_web` found. With `int8` the model has a quarter of the size.

    Raises InputError for an index or a tokenizer that a page cannot have, or a folder that is not
    new, and OutputError where it cannot be written.
    """
    folder = Path(folder)
    check_new(folder)
    tokenizer = tokenizer_rules(embedder.pretrained.tokenizer)
    if 0 in embedder.bilm.config.aligned_layers:
        raise InputError(
            "layer 0 of the model is aligned, but a page compares words by the plain one; "
            "align other layers only, or serve the model (elmo serve)"
        )
    unit = index.config.unit
    if unit == "words":
        raise InputError(
            f"{index.name}: an index of words; a page searches sentences or paragraphs"
        )
    if index.config.pooling not in _POOLINGS:
        raise InputError(
            f"{index.name}: its pooling is {index.config.pooling!r}, but a page has "
            f"{', '.join(_POOLINGS)}; build an index with one of these"
        )
    if len(index) > _MAX_PASSAGES:
        raise InputError(
            f"{index.name}: has {len(index):,} passages, but a page can have {_MAX_PASSAGES:,}; "
            "build an index of less text, or serve it (elmo serve --index)"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_directory(folder) as unfinished:
            files = _Files(unfinished)
            _copy_scripts(files)
            paths = _copy_runtime(files, onnxruntime)
            paths["model"] = _write_model(files, embedder, int8=int8)
            info = InfoResponse.of(embedder, [], index).model_dump()
            del info["source"], info["kernel"]  # the first may be a path of this machine
            content = {
                "format": _FORMAT,
                "info": info | {"precision": "int8" if int8 else "float32"},
                "tokenizer": tokenizer,
                "layer_weights": [weights.model_dump() for weights in layer_weights],
                "files": paths,
                "index": _write_index(files, index),
            }
            files.write_json("model/page.json", content)
            files.write("LICENSES.txt", _licenses(embedder, onnxruntime))
            _write_service_worker(files, [paths["model"]["path"], paths["wasm"]["path"]])
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror or error})") from None


def check_new(folder: Path) -> None:
    """Refuse a folder with something in it, before any work is done."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists already; delete it, or give another name")


def _copy_scripts(files: _Files) -> None:
    """The front end, which names its back end in index.html, and elmokit-js."""
    for path in sorted(_PAGE.iterdir()):
        if path.name not in ("index.html", "http_backend.js", "service_worker.js"):
            files.write(f"page/{path.name}", path.read_bytes())
    html = (_PAGE / "index.html").read_text("utf-8")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    html = _replace(html, 'data-backend="http"', 'data-backend="browser"')
    html = _replace(html, '<meta charset="utf-8">', f'<meta charset="utf-8">\n{policy}')
    files.write("index.html", html)
    javascript = next((own for own in _JAVASCRIPT_FOLDERS if own.is_dir()), None)
    if javascript is None:
        raise InputError("the files of elmokit-js are missing; install elmokit again")
    for path in sorted(javascript.glob("*.js")):
        files.write(f"elmokit-js/{path.name}", path.read_bytes())


def _copy_runtime(files: _Files, onnxruntime: OnnxruntimeWeb) -> dict[str, Any]:
    """onnxruntime-web, its modules as .js: not every host knows that .mjs is JavaScript."""
    paths: dict[str, Any] = {"elmokit": {"path": "elmokit-js/elmokit.js"}}
    for name, file in (("runtime", RUNTIME), ("glue", GLUE)):
        content = (onnxruntime.folder / file).read_bytes()
        path = f"onnxruntime/{file.removesuffix('.mjs')}.js"
        paths[name] = {"path": files.write(path, content)}
    path = files.write(f"onnxruntime/{WASM}", (onnxruntime.folder / WASM).read_bytes())
    paths["wasm"] = files.name_by_content(path)
    return paths


def _write_model(files: _Files, embedder: Embedder, *, int8: bool) -> dict[str, Any]:
    path = "model/model.onnx"
    (files.folder / "model").mkdir()
    softmax = embedder.pretrained.model.softmax is not None
    export_onnx(embedder, files.folder / path, int8=int8, softmax=softmax)
    if (files.folder / f"{path}.data").exists():
        raise InputError(
            f"the model has more than 2 GB, which no browser loads{'' if int8 else '; use int8'}"
        )
    return files.name_by_content(path)


def _write_index(files: _Files, index: Index) -> dict[str, str]:
    """The passages of an index as JSON, and the numbers of its vectors and whitenings."""
    config, vocabulary = index.config, index.embedder.pretrained.vocabulary
    zero = np.zeros(index.store.dim, np.float32)
    hits = index.store.nearest(zero, index.store.counts().vectors)
    found = {hit.passage.id: hit.passage for hit in hits}
    if len(found) < len(index):
        raise InputError(f"{index.name}: of kind {config.kind}, expected an exact one (flat)")
    refs = [found[id_] for id_ in sorted(found)]
    passages = [
        Passage(ref.file, ref.line, ref.start, ref.end, ref.text, _sentences(index, ref.text))
        for ref in refs
    ]
    sources, vectors = embed_passages(config, index.embedder, passages)
    has_matrix, numbers = _whitening_numbers(index.whitening)
    vectors = index.whitening.transform(vectors)
    frequent = [] if vocabulary is None else [*vocabulary][:MOST_FREQUENT]
    content: dict[str, Any] = {
        "dim": index.store.dim,
        "layers": config.layers,
        "pooling": config.pooling,
        "modes": index.modes,
        "settings": _SEARCH_SETTINGS,
        "has_matrix": has_matrix,
        "stop_words": sorted({*stop_words_of(config.tokenizer), *frequent}),
        "vector_passages": [source.passage for source in sources],
    }
    numbers_of_vectors = [vectors]
    terms: list[list[str]] = [[] for _ in passages]
    if (part := index.store.lexical_part) is not None:
        terms = [index.terms(passage.words) for passage in passages]
        words = sorted({word for passage in passages for word in passage.words})
        has_word_matrix, word_numbers = _whitening_numbers(part.word_whitening)
        numbers += word_numbers
        word_vectors = WordVectors(index.embedder, part.word_whitening)(words)
        numbers_of_vectors.append(word_vectors)
        content |= {
            "word_dim": word_vectors.shape[1],
            "has_word_matrix": has_word_matrix,
            "words": words,
            "stems": _stems(part.stemmer, [*(vocabulary or ()), *words], terms),
        }
    content["passages"] = [
        {
            "id": ref.id, "file": ref.file, "line": ref.line, "start": ref.start, "end": ref.end,
            "text": ref.text, "sentences": passage.sentences, "terms": own,
        }
        for ref, passage, own in zip(refs, passages, terms, strict=True)
    ]  # fmt: skip
    numbers += [rows.astype("<f2").tobytes() for rows in numbers_of_vectors]
    paths = {
        "passages": files.write_json("model/passages.json", content),
        "numbers": files.write("model/passages.bin", b"".join(numbers)),
    }
    if config.pooling == "idf":
        assert vocabulary is not None  # the index was opened with this model
        paths["vocabulary"] = files.write_json("model/vocabulary.json", [*vocabulary])
    return paths


def _sentences(index: Index, text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(words) for words in index.config.tokenize(text))


def _whitening_numbers(whitening: Whitening) -> tuple[bool, list[bytes]]:
    """Whether it has a matrix beside that of ones, and its numbers in float32."""
    has_matrix = not np.array_equal(whitening.matrix, np.eye(len(whitening.mean)))
    parts = [whitening.mean, whitening.matrix] if has_matrix else [whitening.mean]
    return has_matrix, [part.astype("<f4").tobytes() for part in parts]


def _stems(stemmer: str, words: Iterable[str], terms: Sequence[Sequence[str]]) -> dict[str, str]:
    """What the words become that the page may be asked for, where that matters in these passages.

    So the page needs no stemmer of its own.
    """
    known = {term for own in terms for term in own}
    stems = dict[str, str]()
    for word in {*words, *known}:
        runs = get_stemmer(NO_STEMMER).terms([word])
        stems |= dict(zip(runs, get_stemmer(stemmer).terms([word]), strict=True))
    return {
        run: stem for run, stem in stems.items() if run != stem and (run in known or stem in known)
    }


def _write_service_worker(files: _Files, large: Sequence[str]) -> None:
    """The service worker with the list of all files, whose version changes with any of them."""
    names = sorted(
        path.relative_to(files.folder).as_posix()
        for path in files.folder.rglob("*")
        if path.is_file()
    )
    script = (_PAGE / "service_worker.js").read_text("utf-8")
    version = hashlib.sha256(script.encode())
    for name in names:
        version.update(hashlib.sha256((files.folder / name).read_bytes()).digest())
    small = [name for name in names if name not in large]
    script = _replace(script, 'VERSION = ""', f'VERSION = "{version.hexdigest()[:16]}"')
    lists = f"SMALL_FILES = {json.dumps(small)}, LARGE_FILES = {json.dumps([*large])}"
    script = _replace(script, "SMALL_FILES = [], LARGE_FILES = []", lists)
    files.write("service_worker.js", script)


def _licenses(embedder: Embedder, onnxruntime: OnnxruntimeWeb) -> str:
    stated = re.search(r"^license: *(.+)$", embedder.pretrained.card, re.MULTILINE)
    licence = stated[1].strip() if stated else "its licence is not stated"
    return _LICENSES.format(
        version=elmokit.__version__, licence=licence, onnxruntime=onnxruntime.version
    )


def _replace(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old  # the page's own files
    return text.replace(old, new)
