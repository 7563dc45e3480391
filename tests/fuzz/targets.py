"""What is fuzzed: for each target the valid files it starts from, and what reads them."""

import asyncio
import gzip
import io
import json
import lzma
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mutations import TEXTS, mutate, mutate_bytes, mutate_value

import elmokit
from elmokit import formats
from elmokit.errors import InputError
from elmokit.fasta import Identifiers, count_proteins
from elmokit.files import TextFile, read_lines
from elmokit.formats.alignment import read_alignment
from elmokit.model_config import BiLMConfig
from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.run_directory import RunDirectory
from elmokit.pretraining.settings import PretrainingSettings
from elmokit.pretraining.trainer import Trainer
from elmokit.search.index import Index
from elmokit.server.app import create_app
from elmokit.server.app_resources import AppResources
from elmokit.server.limits import Limits
from elmokit.tasks.datasets.columns import read_conllu, read_propbank
from elmokit.tasks.datasets.coreference import read_coreference
from elmokit.tasks.datasets.senses import read_raganato, read_semcor
from elmokit.tasks.datasets.squad import read_squad
from elmokit.tasks.datasets.text_tables import read_labelled, read_pairs, read_trees
from elmokit.tasks.saved_model import load_task
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from elmokit.tokenizers import get_tokenizer
from elmokit.toml_settings import read_settings, to_toml
from manylangs_models import make_manylangs
from random_models import make_corpus, make_folder, make_options, make_weights
from task_examples import EXAMPLES, tiny_settings
from tensor_bundle import lm_1b_variables, write_checkpoint, write_slices
from tiny_run import SENTENCES, TINY

SHAPE = {
    "dim": 4, "projection_dim": 2, "n_layers": 1, "filters": [[1, 2], [2, 2]], "n_highway": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """Writes valid files to a folder, and reads that folder after some of them were changed.

    `changed` are the patterns of the files that are changed.
    """

    name: str
    make: Any
    read: Any
    changed: tuple[str, ...] = ("*", "*/*")

    def mutate(self, folder, random):
        """Change one file of the folder, or two; return what they were."""
        paths = _paths.get(folder)
        if paths is None:
            found = {p for pattern in self.changed for p in folder.glob(pattern) if p.is_file()}
            paths = _paths[folder] = sorted(found)
        before = {}
        for _ in range(random.choice([1, 1, 1, 2])):
            path = random.choice(paths)
            before.setdefault(path, path.read_bytes())
            path.write_bytes(mutate(path.name, path.read_bytes(), random))
        return before


TARGETS: dict[str, Target] = {}
_paths: dict[Path, list[Path]] = {}  # the files of a folder that are changed


def target(name, *changed, make):
    """Register the function that reads the folder which `make` has written."""

    def register(read):
        TARGETS[name] = Target(name, make, read, changed or ("*", "*/*"))
        return read

    return register


def _load_model(folder):
    """Load a model; one of ten must embed, which takes longer than to load."""
    pretrained = formats.load(folder)
    contents = [path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()]
    if zlib.crc32(b"".join(contents)) % 10:
        return
    options = elmokit.LoadOptions(threads=1, kernel="torch")
    (vectors,) = elmokit.Embedder(pretrained, options).embed([["a", "cat"]])
    assert vectors.shape[1] == 2


def _make_bilm_tf(folder):
    make_folder(folder, softmax_words=5, **SHAPE)


target("options.json", "options.json", make=_make_bilm_tf)(_load_model)
target("hdf5", "weights.hdf5", make=_make_bilm_tf)(_load_model)


def _make_word_model(folder):
    make_folder(folder, table_words=6, softmax_words=6, dim=4, projection_dim=2, n_layers=1,
                characters=False)  # fmt: skip


target("vocabulary", "vocab.txt", make=_make_word_model)(_load_model)


def _make_native(folder):
    make_folder(folder, softmax_words=5, **SHAPE)
    pretrained = formats.load(folder)
    for path in folder.iterdir():
        path.unlink()
    formats.native.write_native(pretrained, folder)


target("config.json", "config.json", make=_make_native)(_load_model)
target("safetensors", "model.safetensors", "*.txt", make=_make_native)(_load_model)


def _make_manylangs(folder):
    make_manylangs(folder, dim=4, projection_dim=2, n_layers=1, filters=[[1, 2]])
    state = torch.load(folder / "encoder.pkl", weights_only=True)
    torch.save(state, folder / "encoder.pkl")  # one file in the format of today


target("manylangs", make=_make_manylangs)(_load_model)


def _make_checkpoint(folder):
    options = make_options(**SHAPE)
    weights = make_weights(options, softmax_words=5)
    names = {f"lm/{name}": array for name, array in weights.items()}
    write_checkpoint(folder / "model.ckpt", names, partitions={"lm/softmax/W": 2})
    (folder / "options.json").write_text(json.dumps(options))
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n')
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\na\nb\n")


target("tensorflow", "*.index", "*.data*", "checkpoint", make=_make_checkpoint)(_load_model)


def _make_lm_1b(folder):
    options = make_options(clips=(None, None), skip=False, **SHAPE)
    weights = make_weights(options, directions=1, softmax_words=8)
    weights["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/peepholes"] = np.ones((3, 4), np.float32)
    variables = lm_1b_variables(weights, [1, 2, 3, 4, 5], shards=2)
    for name, prefix in (("ckpt-char-embedding", "char_"), ("ckpt-lstm", "lstm/")):
        write_slices(folder / name, {n: a for n, a in variables.items() if n.startswith(prefix)})
    softmax = {n: a for n, a in variables.items() if n.startswith("softmax")}
    for number, (name, array) in enumerate(softmax.items()):
        write_slices(folder / f"ckpt-softmax{number}", {name: array})
    (folder / "vocab-2016-09-10.txt").write_text("<S>\n</S>\n<UNK>\nThe\ncat\n.\n")


target("lm_1b", make=_make_lm_1b)(_load_model)


def _make_alignment(folder):
    matrix = np.eye(4, dtype=np.float32)
    np.savez(folder / "align.npz", **{"0": matrix, "1": matrix})
    torch.save(torch.from_numpy(matrix), folder / "align.pth")
    torch.save(torch.from_numpy(matrix), folder / "old.pth", _use_new_zipfile_serialization=False)


@target("alignment", make=_make_alignment)
def _read_alignments(folder):
    config = BiLMConfig(2, 4, 1, None, vocabulary_size=5)
    for path in sorted(folder.iterdir()):
        read_alignment(path, config)


def _make_archives(folder):
    model = folder / "model"
    model.mkdir()
    make_folder(model, softmax_words=5, **SHAPE)
    files = {path.name: path.read_bytes() for path in sorted(model.iterdir())}
    for path in model.iterdir():
        path.unlink()
    model.rmdir()
    with zipfile.ZipFile(folder / "model.zip", "w") as packed:
        for name, content in files.items():
            packed.writestr(zipfile.ZipInfo(f"model/{name}"), content)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"model/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    (folder / "model.tar").write_bytes(packed.getvalue())
    (folder / "model.tgz").write_bytes(gzip.compress(packed.getvalue(), mtime=0))


@target("archives", make=_make_archives)
def _load_archives(folder):
    _each(sorted(folder.iterdir()), formats.load)


def _each(values, read):
    """Call a function with every value; the first error of ours is raised when all were tried."""
    errors = []
    for value in values:
        try:
            read(value)
        except elmokit.ElmokitError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _make_fasta(folder):
    (folder / "a.fasta").write_text(">sp|P1|ONE a protein\nMKV\nLL*\n\n>sp|P2|\nMX-\n>a|P3\nA\n")


@target("fasta", make=_make_fasta)
def _read_fasta(folder):
    _each(
        [None, -1, "md5", 1], lambda field: count_proteins(folder / "a.fasta", Identifiers(field))
    )


def _make_columns(folder):
    (folder / "ner.conll").write_text(
        "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nof VBZ I-VP I-ORG\nthe DT I-NP O\n\na b c B-X\n"
    )
    (folder / "ud.conllu").write_text(
        "# sent_id = 1\n1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\tde\tADP\tE\t_\t3\tcase\t_\t_\n"
        "2\tle\tle\tDET\t_\t_\t3\tdet\t_\t_\n2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    )
    (folder / "srl.props").write_text(
        "1\tThe\tDT\t-\t-\t(A0*\t*\n2\tcat\tNN\t-\t-\t*)\t*\n3\tsat\tVB\tsit\tsit.01\t(V*)\t(A1*)\n"
        "4\tran\tVB\trun\trun.02\t*\t(V*)\n\n"
    )
    (folder / "coref.conll").write_text(
        "#begin document (bc/x); part 000\nbc/x 0 0 The (0\nbc/x 0 1 cat 0)|(1)\n\n"
        "bc/x 0 0 it (0)\n#end document\n"
    )
    (folder / "gap.tsv").write_text(
        "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
        "t-1\tAda met Bea. She left.\tShe\t13\tAda\t0\tTRUE\tBea\t8\tFALSE\thttp://x\n"
    )


def _words(text):
    return get_tokenizer("spaces").tokenize(text)


@target("conll", make=_make_columns)
def _read_columns(folder):
    readers = {
        "ner.conll": [TASKS["ner"].read, TASKS["pos"].read],
        "ud.conllu": [read_conllu, TASKS["pos"].read],
        "srl.props": [read_propbank],
        "coref.conll": [lambda path: read_coreference(path, _words)],
        "gap.tsv": [lambda path: read_coreference(path, _words)],
    }
    pairs = [(folder / name, read) for name, functions in readers.items() for read in functions]
    _each(pairs, lambda pair: pair[1](pair[0]))


def _make_tables(folder):
    (folder / "a.tsv").write_text("pos\ta good film\nneg\tbad\n")
    (folder / "pairs.tsv").write_text("a b\tc d\tneutral\nx\ty\t-\n")
    (folder / "a.tree").write_text("(3 (2 A) (4 (2 good) (1 film)))\n(0 x)\n")
    (folder / "semcor.xml").write_text(
        "<contextfile concordance=brown>\n<context filename=a paras=yes>\n<p pnum=1>\n<s snum=1>\n"
        "<wf cmd=done pos=VB lemma=say wnsn=1 lexsn=2:32:00::>said</wf>\n<punc>.</punc>\n</s>\n"
        "</p>\n</context>\n</contextfile>\n"
    )
    (folder / "wsd.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8" ?>\n<corpus lang="en">\n<text id="d0">\n'
        '<sentence id="d0.s0">\n<wf lemma="a" pos="DET">a</wf>\n'
        '<instance id="d0.s0.t0" lemma="cat" pos="NOUN">cat</instance>\n</sentence>\n'
        "</text>\n</corpus>\n"
    )
    (folder / "wsd.key").write_text("d0.s0.t0 cat%1:05:00::\n")


@target("tables and XML", make=_make_tables)
def _read_tables(folder):
    readers = {
        "a.tsv": lambda path: read_labelled(path, _words),
        "pairs.tsv": lambda path: read_pairs(path, _words),
        "a.tree": read_trees,
        "semcor.xml": lambda path: [*read_semcor(path)],
        "wsd.xml": lambda path: read_raganato(path, folder / "wsd.key"),
    }
    _each(readers.items(), lambda pair: pair[1](folder / pair[0]))


def _make_squad(folder):
    question = {
        "id": "1", "question": "Where is it?", "is_impossible": False,
        "answers": [{"text": "Rome", "answer_start": 16}],
    }  # fmt: skip
    paragraph = {"context": "The cat eats in Rome.", "qas": [question]}
    (folder / "squad.json").write_text(
        json.dumps({"version": "v2.0", "data": [{"title": "a", "paragraphs": [paragraph]}]})
    )


@target("squad", make=_make_squad)
def _read_squad(folder):
    read_squad(folder / "squad.json", _words)


def _make_texts(folder):
    text = "A line.\n\nÜber.\r\nanother\n".encode()
    (folder / "a.txt").write_bytes(text)
    (folder / "a.txt.gz").write_bytes(gzip.compress(text, mtime=0))
    (folder / "a.txt.xz").write_bytes(lzma.compress(text, preset=0))


@target("text", make=_make_texts)
def _read_texts(folder):
    def read(path):
        with TextFile(str(path)).open() as opened:
            for _ in read_lines(opened, path.name):
                pass

    _each(sorted(folder.iterdir()), read)


def _make_index(folder):
    (folder / "text.txt").write_text("A cat.\nThe dog sat.\nRome is old.\nOslo.\nA fox ran.\n")
    Index.build(folder / "built", [str(folder / "text.txt")], _model(folder)).close()
    (folder / "text.txt").unlink()
    for path in (folder / "built").iterdir():
        path.rename(folder / path.name)
    (folder / "built").rmdir()


_models: dict[str, Any] = {}


def _model(folder):
    """A tiny model that stays the same for all executions."""
    if "tiny" not in _models:
        files = folder.parent / "tiny-model"
        files.mkdir()
        make_folder(files, softmax_words=5, **SHAPE)
        _models["tiny"] = elmokit.load(files, threads=1, kernel="torch")
    return _models["tiny"]


@target("index", make=_make_index)
def _read_index(folder):
    elmokit.search.read_index_info(folder)
    with Index.open(folder, _model(folder)) as index:
        index.search("a cat", k=3)


def _make_run(folder):
    corpus = folder / "corpus"
    make_corpus(corpus, SENTENCES, valid=SENTENCES[:2])
    settings = _run_settings()
    elmokit.pretrain(Corpus.open(corpus), settings, folder / "run")
    for path in (folder / "run").glob("tensorboard/*"):
        path.unlink()


def _run_settings():
    return PretrainingSettings(**{
        **vars(TINY), "projection_size": 2, "cell_size": 4, "filters": ((1, 2),), "steps": 2,
        "validation_interval": 2, "batch_size": 2, "max_characters": 8, "highway_layers": 1,
    })  # fmt: skip


@target("run", "run/*.*", "run/model/*", "corpus/*", make=_make_run)
def _read_run(folder):
    corpus = Corpus.open(folder / "corpus")
    assert corpus.lexicon, corpus.valid
    assert corpus.counts.size
    run = RunDirectory(folder / "run", corpus, _run_settings(), writes=False)
    Trainer(corpus, _run_settings()).start(folder / "run", run.read_checkpoint(), None)
    _load_model(folder / "run")


def _make_task(folder):
    examples = EXAMPLES["ner"]
    settings = tiny_settings(elmo="both", epochs=1, hidden_size=2, word_embedding_size=2)
    train_task(TASKS["ner"], examples, examples, folder, settings=settings, model=_model(folder))


@target("task", "task.json", "*.safetensors", make=_make_task)
def _read_task(folder):
    load_task(folder).predict(["A cat sat."])


def _make_settings(folder):
    (folder / "pretrain.toml").write_text(to_toml(PretrainingSettings()))
    (folder / "task.toml").write_text(to_toml(TaskSettings()))
    (folder / "limits.toml").write_text(to_toml(Limits()))


@target("settings.toml", make=_make_settings)
def _read_settings(folder):
    records = {"pretrain": PretrainingSettings(), "task": TaskSettings(), "limits": Limits()}
    _each(records.items(), lambda pair: read_settings(pair[1], folder / f"{pair[0]}.toml", {}))


class Service:
    """The service without a socket: requests are handed to its ASGI application."""

    def __init__(self, model):
        resources = AppResources(Limits(timeout_seconds=5, max_body_bytes=2**16))
        self._loop = asyncio.new_event_loop()
        self._app = create_app(resources, token=None)
        self._loop.run_until_complete(self._start())
        resources.open(model, None)

    async def _start(self):
        self._events = asyncio.Queue()
        await self._events.put({"type": "lifespan.startup"})
        started = asyncio.Event()

        async def send(message):
            assert message["type"] == "lifespan.startup.complete", message
            started.set()

        scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
        self._lifespan = asyncio.ensure_future(self._app(scope, self._events.get, send))
        await started.wait()

    def schema(self):
        """The OpenAPI schema, which has an example of each body."""
        sent = self.request("GET", "/openapi.json", [], b"")
        return json.loads(b"".join(message.get("body", b"") for message in sent))

    def request(self, method, path, headers, body):
        """The messages of a response."""
        return self._loop.run_until_complete(self._request(method, path, headers, body))

    async def _request(self, method, path, headers, body):
        raw, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "path": raw, "raw_path": raw.encode("utf-8", "replace"), "root_path": "",
            "query_string": query.encode("utf-8", "replace"), "scheme": "http", "headers": headers,
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        arriving = [{"type": "http.request", "body": body, "more_body": False}]
        sent = []

        async def receive():
            if not arriving:
                await asyncio.Event().wait()
            return arriving.pop()

        async def send(message):
            sent.append(message)

        await asyncio.wait_for(self._app(scope, receive, send), 9)
        return sent


_METHODS = ["GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE", "X\0", ""]
_HEADERS = [
    b"content-type", b"accept", b"authorization", b"host", b"content-length", b"origin", b"range",
    b"if-none-match", b"if-modified-since", b"transfer-encoding", b"expect", b"cookie", b"",
]  # fmt: skip
_VALUES = [
    b"application/json", b"application/x-npz", b"application/x-npy", b"text/html", b"*/*", b"",
    b"Bearer \xff", b"bytes=0-", b"bytes=-1,5-2,,", b"\xff\xfe", b"a" * 5000, b"-1", b"\0",
    b"multipart/form-data; boundary=", b"application/json; charset=utf-7",
    b"100-continue",
]  # fmt: skip


def _make_requests(folder):
    _model(folder).encode(["The first text takes a second."])
    _models["service"] = Service(_model(folder))
    _models["schema"] = _models["service"].schema()
    request = {
        "method": "POST", "path": "/score", "headers": [["content-type", "application/json"]],
        "body": '{"texts": ["The first text takes a second."]}',
    }  # fmt: skip
    (folder / "request.json").write_text(json.dumps(request))


class HttpTarget(Target):
    """Requests, in a file each: method, path, headers, and a body."""

    def mutate(self, folder, random):
        """Write a request like the examples of the OpenAPI schema."""
        schema = _models["schema"]
        path = random.choice([*schema["paths"], "/", "/page/", "/docs", "/page/../app.py"])
        operation = schema["paths"].get(path, {}).get("post", {})
        reference = (
            operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        ).get("schema", {}).get("$ref", "/").rpartition("/")[2]  # fmt: skip
        described = schema["components"]["schemas"].get(reference, {})
        value = described.get("example") or described.get("examples", [{}])[0]
        for name in described.get("properties", {}):
            if random.random() < 0.1:
                value = {**value, name: random.choice([*TEXTS, 1, "top", "idf", [0], None])}
        for _ in range(random.choice([0, 1, 1, 2, 3])):
            value = mutate_value(value, random)
        body = json.dumps(value).encode()
        if random.random() < 0.2:
            body = mutate_bytes(body, random)
        headers = [(b"content-type", b"application/json")] if random.random() < 0.9 else []
        for _ in range(random.choice([0, 0, 1, 3])):
            headers.append((random.choice(_HEADERS), random.choice(_VALUES)))
        method = "POST" if operation else "GET"
        if random.random() < 0.1:
            method = random.choice(_METHODS)
        if random.random() < 0.15:
            path += random.choice(["/", "?a=1", "?limit=\udcff", "%00", "/../x", "//", "é"])
        request = {
            "method": method, "path": path, "body": body.decode("latin-1"),
            "headers": [[n.decode("latin-1"), v.decode("latin-1")] for n, v in headers],
        }  # fmt: skip
        file = folder / "request.json"
        file.write_text(json.dumps(request))
        return {file: b""}


def _send_request(folder):
    request = json.loads((folder / "request.json").read_text())
    headers = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in request["headers"]]
    sent = _models["service"].request(
        request["method"], request["path"], headers, request["body"].encode("latin-1")
    )
    starts = [message for message in sent if message["type"] == "http.response.start"]
    assert len(starts) == 1, sent
    status = starts[0]["status"]
    assert status != 500, b"".join(message.get("body", b"") for message in sent)
    if status >= 400:
        raise InputError(f"status {status}")


TARGETS["http"] = HttpTarget("http", _make_requests, _send_request)
