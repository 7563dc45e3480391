import errno
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

import elmokit
from elmokit import catalogue
from elmokit.compat import tfhub
from elmokit.compat.allennlp import ElmoEmbedder
from elmokit.errors import DownloadError, FormatError
from elmokit.file_download import RemoteFile
from elmokit.formats.model_format import FORMATS
from elmokit.tokenizers import check_tokenizer
from faulty_server import faulty_server
from random_models import make_folder

# AllenNLP's two generations of addresses, and S3's own.
MEDIUM = "elmo/2x2048_256_2048cnn_1xhighway/elmo_2x2048_256_2048cnn_1xhighway_"
ALLENNLP = [
    "https://allennlp.s3.amazonaws.com/models/",
    "https://s3-us-west-2.amazonaws.com/allennlp/models/",
    "s3://allennlp/models/",
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ELMOKIT_MODELS", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def mirror(monkeypatch, model_folder):
    """An institute's mirror, which has the files of `medium`."""
    with faulty_server() as server:
        for name in ("options.json", "weights.hdf5"):
            server.files[f"/medium/{name}"] = (model_folder / name).read_bytes()
        monkeypatch.setenv("ELMOKIT_MIRROR", server.url)
        monkeypatch.setenv("ELMOKIT_OFFLINE", "0")
        yield server


@pytest.fixture
def no_network(monkeypatch):
    """Any use of a socket is an error of its own kind."""

    def refuse(*_, **__):
        raise AssertionError("a socket was opened")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)


def fingerprint(*source, **options):
    return elmokit.load(*source, **options).pretrained.fingerprint()


# --- the list ---


def test_every_entry_is_well_formed():
    models = elmokit.models()
    languages = catalogue._tables()["languages"]
    for model in models:
        assert re.fullmatch("[a-z0-9][a-z0-9.-]*", model.name), model
        assert model.description, model.name
        assert model.licence, model.name
        assert {*model.languages} <= {*languages}, model.name
        assert model.languages or model.domain == "proteins" or model.name == "nlpl-219", model.name
        assert model.format in FORMATS or (model.unsupported), model.name
        if model.tokenizer is not None:
            check_tokenizer(model.tokenizer)
        assert (
            model.folder
            or model.page.startswith(("http://", "https://"))
            or (all(file.urls for source in model.sources for file in source))
        ), model.name
        assert model.folder or model.sources or model.unsupported, model.name
        for file in (file for source in model.sources for file in source):
            for url in file.urls:
                assert urlsplit(url).scheme in ("http", "https"), url
                assert re.fullmatch(r"[\w.-]+\.\w+", urlsplit(url).netloc), url
            digest = {"": 0, "sha1": 40, "sha256": 64}[file.hash.partition(":")[0]]
            assert re.fullmatch("[0-9a-f]*", file.hash.partition(":")[2]), file
            assert len(file.hash.partition(":")[2]) == digest, file
        for source in model.sources:
            assert len({file.name for file in source}) == len(source), model.name
        assert "{" not in repr(model).replace("format", ""), model.name


@pytest.mark.parametrize("page", ["README.md", "docs/models.md"])
def test_the_documents_state_how_many_models_there_are(page):
    text = (Path(__file__).parents[1] / page).read_text("utf-8")
    stated = re.findall(r"(\d+) published\s+models", text)
    assert stated == [str(len(catalogue._published()))]


def test_no_two_models_share_a_name_or_an_alias():
    models = elmokit.models()
    names = [name.lower() for m in models for name in (m.name, *m.aliases)]
    assert len(names) == len({*names})
    assert len(models) == len(catalogue._published())


def test_names_that_users_of_other_libraries_know_are_aliases():
    flair = ["small", "medium", "original", "large", "5.5B", "pt", "portuguese", "pubmed"]
    texar = ["elmo-small", "elmo-medium", "elmo-original", "elmo-original-5.5b"]
    fastnlp = ["en-small", "en-medium", "en-original", "en-original-5.5b"]
    delft = ["elmo-en", "elmo-pubmed", "elmo-fr"]
    for name in [*flair, *texar, *fastnlp, *delft, "seqvec", "manylangs-zh", "english"]:
        assert catalogue.find_model(name) is not None, name
    assert catalogue.find_model("5.5B").name == "original-5.5b"


def test_models_are_found_by_language_domain_and_words():
    def names(*query, **options):
        return {model.name for model in elmokit.models(*query, **options)}

    assert names(language="de") == names(language="German") == names("german")
    assert {"de-tsystems", "manylangs-de", "aligned-de"} <= names("german")
    assert names(domain="proteins") == {
        "seqvec", "seqvec-tf", "catelmo", "catelmo-shallow", "catelmo-deep"
    }  # fmt: skip
    assert names("norwegian lemmas") == {"no-wiki-lemmas"}
    assert names("klingon") == set()


def test_an_unknown_name_gets_suggestions(tmp_path):
    for name, message in [
        ("smal", "smal: no such file or folder, and no model of that name; did you mean small"),
        ("orignal", "did you mean original"),
        ("german", "did you mean de-tsystems or aligned-de"),
        ("qqqq", r"no model of that name \(elmo models lists them all\)"),
        (tmp_path / "small", "small: no such file or folder$"),
    ]:
        with pytest.raises(FormatError, match=message):
            elmokit.load(name)
    with pytest.raises(FormatError, match="a: no such file or folder, and no model of that name"):
        elmokit.load("a" * 300)
    missing = (tmp_path / "small").as_uri()
    with pytest.raises(FormatError, match=f"{missing}: no such file or folder$"):
        elmokit.load(missing)
    with pytest.raises(FormatError, match=r"http://\[x/y: not an address .Invalid IPv6 URL"):
        elmokit.load("http://[x/y")
    with pytest.raises(elmokit.InputError, match="no model of that name; did you mean small"):
        elmokit.download("smal")


def test_a_path_that_exists_comes_before_a_name(model_folder, tmp_path, monkeypatch):
    shutil.copytree(model_folder, tmp_path / "english")
    monkeypatch.chdir(tmp_path)
    assert fingerprint("english") == fingerprint(model_folder)
    assert fingerprint() != fingerprint(model_folder)


# --- download ---


def test_a_name_loads_the_downloaded_model(mirror, model_folder, cache):
    assert elmokit.models("medium")[0].path is None
    assert fingerprint("medium") == fingerprint(model_folder)
    assert fingerprint("en-medium", offline=True) == fingerprint(model_folder)
    assert len(mirror.requests) == 2
    assert elmokit.models("medium")[0].path == cache / "medium"
    assert elmokit.download("Elmo-Medium") == cache / "medium"
    assert elmokit.load("medium").pretrained.tokenizer == "moses"
    assert elmokit.load("medium", tokenizer="spaces").pretrained.tokenizer == "spaces"


@pytest.mark.parametrize("host", ALLENNLP)
def test_the_addresses_in_old_programs_stand_for_the_model(mirror, model_folder, host):
    options, weights = f"{host}{MEDIUM}options.json", f"{host}{MEDIUM}weights.hdf5"
    vectors = ElmoEmbedder(options, weights).embed_sentence(["word1", "Cat"])
    files = [model_folder / name for name in ("options.json", "weights.hdf5")]
    np.testing.assert_array_equal(vectors, ElmoEmbedder(*files).embed_sentence(["word1", "Cat"]))
    assert fingerprint(options) == fingerprint(model_folder)  # one stands for both
    assert {path for path, _ in mirror.requests} == {"/medium/options.json", "/medium/weights.hdf5"}


@pytest.mark.parametrize(
    "address",
    [
        "https://tfhub.dev/google/elmo/3",
        "http://tfhub.dev/google/elmo/3/",
        "https://tfhub.dev/google/elmo/3?tf-hub-format=compressed",
        "https://alpha.tfhub.dev/google/elmo/3",
    ],
)
def test_a_tfhub_address_stands_for_the_model(mirror, model_folder, tmp_path, address):
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as packed:
        packed.add(model_folder, ".")
    mirror.files["/tfhub-elmo-3/elmo-3.tar.gz"] = (tmp_path / "packed.tar.gz").read_bytes()
    outputs = tfhub.Module(address)(["a b"], as_dict=True)
    expected = tfhub.Module(model_folder)(["a b"], as_dict=True)
    np.testing.assert_array_equal(outputs["elmo"], expected["elmo"])


def test_any_other_address_is_downloaded_too(mirror, model_folder):
    urls = [f"{mirror.url}/medium/{name}" for name in ("options.json", "weights.hdf5")]
    assert fingerprint(*urls) == fingerprint(model_folder)
    asked = len(mirror.requests)
    assert fingerprint(*urls, offline=True) == fingerprint(model_folder)
    assert len(mirror.requests) == asked


def test_elmokit_models_has_files_of_addresses_or_says_that_it_has_not(model_folder, monkeypatch):
    monkeypatch.setenv("ELMOKIT_MODELS", str(model_folder))
    address = "https://example.org/elmo/"
    same = fingerprint(address + "options.json", address + "weights.hdf5")
    assert same == fingerprint(model_folder)
    with pytest.raises(
        FormatError, match=r"other.json: no such file, and ELMOKIT_MODELS names its"
    ):
        elmokit.load(address + "other.json", address + "weights.hdf5")


def test_the_second_source_is_used_where_the_first_fails(mirror, cache):
    model = elmokit.PublishedModel(
        "two",
        "two sources",
        sources=(
            (RemoteFile("options.json", (f"{mirror.url}/nowhere",)),),
            (RemoteFile("other.json", (f"{mirror.url}/medium/options.json",)),),
        ),
    )
    assert catalogue._fetch(model, offline=False) == cache / "two" / "other.json"
    del mirror.files["/medium/options.json"]
    (cache / "two" / "other.json").unlink()
    message = (
        "two: options.json cannot be downloaded: 127.0.0.1 answered 404 Not Found; 127.0.0.1 "
        "answered 404 .*; other.json cannot .*; try again, or put options.json .from http.* into "
    )
    with pytest.raises(DownloadError, match=message) as error:
        catalogue._fetch(model, offline=False)
    assert "\n" not in str(error.value)


def test_two_processes_download_a_model_once(mirror, cache):
    mirror.files["/medium/weights.hdf5"] += bytes(2**21)
    mirror.seconds_per_block = 0.02
    code = "from elmokit.catalogue import download; print(download('medium'))"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate() for process in processes]
    assert [out for out, _ in outputs] == [f"{cache / 'medium'}\n"] * 2
    assert sorted(bool(err) for _, err in outputs) == [False, True]
    assert "medium: another process downloads it; waiting" in "".join(err for _, err in outputs)
    assert len(mirror.requests) == 2


def test_a_change_after_the_first_download_is_refused(mirror, cache):
    file = RemoteFile("a.json", (f"{mirror.url}/medium/options.json",))
    model = elmokit.PublishedModel("one", "one file", sources=((file,),))
    path = catalogue._fetch(model, offline=False)
    path.unlink()
    mirror.files["/medium/options.json"] += b" "
    record = re.escape(str(cache / "one.json"))
    message = f"than when it was first downloaded: sha256 .*to accept a change, remove {record}"
    with pytest.raises(DownloadError, match=message):
        catalogue._fetch(model, offline=False)
    (cache / "one.json").unlink()
    assert catalogue._fetch(model, offline=False) == path


def test_a_damaged_file_of_the_cache_is_refused(mirror, cache):
    elmokit.download("medium")
    path = cache / "medium" / "weights.hdf5"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DownloadError, match=r"weights.hdf5: has another content than when it was"):
        elmokit.download("medium")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DownloadError, match=r"bytes, but had [\d,]+ when it was downloaded"):
        elmokit.load("medium")


@pytest.mark.parametrize("content", ["{broken", "[]", '{"options.json": {}}'])
def test_a_damaged_record_is_named(mirror, cache, content):
    elmokit.download("medium")
    (cache / "medium.json").write_text(content)
    with pytest.raises(DownloadError, match=r"medium.json: is damaged, expected .*; remove it to"):
        elmokit.load("medium")


def test_a_record_that_cannot_be_written_is_reported_once(cache, model_folder, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(catalogue, "write_atomically", refuse)  # tests may be run by root
    shutil.copytree(model_folder, cache / "medium")
    for _ in range(2):
        assert fingerprint("medium") == fingerprint(model_folder)
    assert caplog.text.count("checked in full each time they are loaded") == 1


# --- offline ---


@pytest.mark.parametrize("by_argument", [True, False])
def test_offline_mode_opens_no_socket(no_network, monkeypatch, cache, model_folder, by_argument):
    monkeypatch.setenv("ELMOKIT_OFFLINE", "" if by_argument else "1")
    offline = by_argument
    message = (
        "medium: not on this machine, and offline mode is on; put options.json .from https.* and "
        f"weights.hdf5 .from .* into {re.escape(str(cache / 'medium'))}; see https"
    )
    with pytest.raises(DownloadError, match=message):
        elmokit.load("medium", offline=offline)
    with pytest.raises(DownloadError, match="offline mode is on"):
        elmokit.load("https://example.org/a.json", "https://example.org/b.hdf5", offline=offline)
    shutil.copytree(model_folder, cache / "medium")  # by hand
    assert fingerprint("medium", offline=offline) == fingerprint(model_folder)
    assert {*json.loads((cache / "medium.json").read_text())} == {"options.json", "weights.hdf5"}


def test_the_guard_notices_a_download(no_network, monkeypatch):
    monkeypatch.setenv("ELMOKIT_OFFLINE", "no")
    with pytest.raises(AssertionError, match="a socket was opened"):
        elmokit.download("medium")


def test_a_file_put_there_by_hand_must_be_the_right_one(cache):
    (cache / "small").mkdir(parents=True)
    (cache / "small" / "options.json").write_text("{}")
    (cache / "small" / "weights.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert elmokit.models("small", language="en")[0].path is None
    with pytest.raises(DownloadError, match=r"weights.hdf5: has 8 bytes, expected 54,402,456; rem"):
        elmokit.load("small")


def test_a_model_without_an_address_says_where_to_put_it(monkeypatch, cache):
    monkeypatch.setenv("ELMOKIT_OFFLINE", "0")
    with pytest.raises(
        DownloadError, match=r"no program can download it; put options.json and wei"
    ):
        elmokit.load("stackoverflow")


def test_a_model_called_aligned_is_aligned_when_it_is_named(
    mirror, model_folder, tmp_path, monkeypatch
):
    matrix = np.random.default_rng(0).standard_normal((12, 12)) / 4
    torch.save(matrix, tmp_path / "alignment.pth")
    for path in (model_folder / "options.json", model_folder / "weights.hdf5"):
        mirror.files[f"/aligned-es/{path.name}"] = path.read_bytes()
    mirror.files["/aligned-es/alignment.pth"] = (tmp_path / "alignment.pth").read_bytes()
    named, plain = elmokit.load("aligned-es"), elmokit.load(elmokit.download("aligned-es"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    torch.save(matrix + 1, "alignment.pth")  # of another language: it has no effect
    assert elmokit.load("aligned-es").pretrained.fingerprint() == named.pretrained.fingerprint()
    assert named.bilm.config.aligned_layers == (1,)
    assert plain.bilm.config.aligned_layers == ()
    (actual,), (layers,) = named.embed([["gato"]]), plain.embed([["gato"]])
    np.testing.assert_allclose(actual[1], layers[1] @ matrix.T, atol=1e-6)
    np.testing.assert_array_equal(actual[[0, 2]], layers[[0, 2]])
    other = elmokit.load("aligned-es", align={2: matrix})
    assert other.bilm.config.aligned_layers == (2,)
    weights = f"{ALLENNLP[0]}multilingual_elmo/es_weights.hdf5"  # as AllenNLP's programs name it
    assert fingerprint(model_folder / "options.json", weights) == plain.pretrained.fingerprint()


def test_a_mirror_may_have_what_has_no_address(mirror, model_folder):
    for name in ("options.json", "weights.hdf5"):
        mirror.files[f"/stackoverflow/{name}"] = (model_folder / name).read_bytes()
    assert fingerprint("stackoverflow") == fingerprint(model_folder)


def test_a_model_that_elmokit_cannot_load_is_not_downloaded(no_network):
    with pytest.raises(FormatError, match="cannot load it: it is a transformer, not an LSTM"):
        elmokit.load("transformer-elmo", offline=False)


# --- packages ---


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a package with a model on the path, as pip would."""

    def run(package, entry_points, files, *, metadata=""):
        site = tmp_path / f"site-{package}"
        folder = site / package.replace("-", "_")
        folder.mkdir(parents=True)
        make_folder(folder, size=1.5)
        for name, content in files.items():
            (folder / name).write_text(content)
        info = site / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {package}\nVersion: 1.0\n{metadata}")
        (info / "entry_points.txt").write_text(f"[elmokit.models]\n{entry_points}\n")
        monkeypatch.syspath_prepend(site)
        return folder

    yield run
    for name in [name for name in sys.modules if name.startswith("elmokit_test")]:
        del sys.modules[name]


def test_an_installed_package_adds_its_model(install):
    folder = install(
        "elmokit-test-chinese",
        "chinese = elmokit_test_chinese",
        {"__init__.py": ""},
        metadata="Summary: A Chinese model\nLicense-Expression: Apache-2.0\n",
    )
    model = catalogue.find_model("chinese")
    assert (model.description, model.licence) == ("A Chinese model", "Apache-2.0")
    assert (model.package, model.path) == ("elmokit-test-chinese 1.0", folder)
    assert fingerprint("chinese") == fingerprint(folder)


def test_an_installed_package_adds_a_catalogue_or_a_function(install):
    folder = install(
        "elmokit-test-two",
        "anything = elmokit_test_two\nthird = elmokit_test_two:path\nfourth = elmokit_test_two:own",
        {
            "__init__.py": "from pathlib import Path\nimport elmokit\npath = lambda: __path__[0]\n"
            "own = lambda: [elmokit.PublishedModel('fifth', 'x', folder=Path(__path__[0]))]\n",
            "models.toml": '[[group]]\nlanguages = ["zh"]\ncite = ["P18"]\n'
            'models = [{ name = "first", description = "one", folder = "." },\n'
            '{ name = "small", description = "another small", folder = "." }]\n',
        },
    )
    assert {"first", "third", "fifth"} <= {model.name for model in elmokit.models()}
    assert catalogue.find_model("first").languages == ("zh",)
    for name in ("first", "small", "third", "fifth"):  # also in place of our small
        assert fingerprint(name) == fingerprint(folder)


def test_a_broken_package_harms_no_other_model(install, caplog):
    install("elmokit-test-broken", "broken = elmokit_test_broken", {"__init__.py": "1 / 0"})
    install("elmokit-test-odd", "odd = elmokit_test_odd", {
        "__init__.py": "", "models.toml": '[[group]]\nmodels = [{ name = "odd", color = "red" }]',
    })  # fmt: skip
    with caplog.at_level(logging.WARNING):
        names = {model.name for model in elmokit.models()}
    assert "small" in names
    assert not names & {"broken", "odd"}
    assert "elmokit-test-broken 1.0: its model broken is left out (division by zero" in caplog.text
    assert "elmokit-test-odd 1.0: its model odd is left out" in caplog.text


def test_of_two_packages_with_one_name_the_first_is_used(install, caplog):
    for package in ("elmokit-test-one", "elmokit-test-other"):
        install(package, f"same = {package.replace('-', '_')}", {"__init__.py": ""})
    with caplog.at_level(logging.WARNING):
        package = catalogue.find_model("same").package
        assert catalogue.find_model("same").package == package
    assert caplog.text.count("both add a model same; that of the first is used") == 1
