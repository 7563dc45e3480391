"""Models in repositories of the Hugging Face Hub, against a local stand-in for it."""

import json
import os
import subprocess
import sys
import time

import pytest

import elmokit
from elmokit import formats
from elmokit.formats import hub as hub_module
from elmokit.formats.native import card_facts, with_metadata, without_metadata
from local_hub import local_hub
from random_models import make_folder

huggingface_hub = pytest.importorskip("huggingface_hub")

# Evaluates each line that it reads; huggingface_hub reads the environment when it is imported.
CLIENT = """
import contextlib, io, json, os, sys
import elmokit
from huggingface_hub import constants

constants.DOWNLOAD_CHUNK_SIZE = 1000  # of a file that breaks off, whole chunks are kept

def fingerprint(*source, **options):
    return elmokit.load(*source, **options).pretrained.fingerprint()

def elmo(*arguments):
    from elmokit.cli import app
    with contextlib.redirect_stdout(io.StringIO()) as out:
        app(list(arguments), prog_name="elmo", standalone_mode=False)
    return out.getvalue()

for line in sys.stdin:
    try:
        answer = eval(line)
    except elmokit.ElmokitError as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def hub():
    with local_hub() as server:
        yield server


@pytest.fixture(scope="module")
def start(hub, tmp_path_factory):
    """Start a process that evaluates expressions, with an empty cache unless one is given."""
    processes = []

    def start_one(home=None, **variables):
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(home or tmp_path_factory.mktemp("home")),
            "HF_TOKEN": "hf_test",
            "ELMOKIT_OFFLINE": "",
            **variables,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)

        def evaluate(expression):
            print(expression, file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        evaluate.process = process
        return evaluate

    yield start_one
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def client(start, home):
    return start(home)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A model with a softmax, and thus a vocabulary."""
    return formats.load(make_folder(tmp_path_factory.mktemp("model"), softmax_words=9))


@pytest.fixture(scope="module")
def files(pretrained, tmp_path_factory):
    """The files of the model in elmokit's format."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    formats.save(pretrained, folder)
    return contents(folder)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_model_loads_from_a_repository_a_revision_and_a_subfolder(
    hub, client, files, pretrained, tmp_path
):
    other = formats.load(make_folder(tmp_path, dim=7))
    theirs = {f"old/{name}": content for name, content in contents(tmp_path).items()}
    old = hub.commit("user/model", {**files, **theirs, "old/pytorch_model.bin": b"x"}, "v1")
    unneeded = {"pytorch_model.bin": b"x", "images/elmo.png": b"y", "data/config.json": b"{}"}
    hub.commit("user/model", files | unneeded)
    assert client("fingerprint('hf://user/model')") == pretrained.fingerprint()
    assert hub.downloaded("user/model") == sorted(files)
    for address in ("hf://user/model@v1/old", f"HF://user/model@{old}/old/"):
        assert client(f"fingerprint({address!r})") == other.fingerprint()
    assert hub.downloaded("user/model") == ["old/options.json", "old/weights.hdf5"]
    pair = [f"hf://user/model@v1/old/{name}" for name in ("options.json", "weights.hdf5")]
    assert client(f"fingerprint(*{pair})") == other.fingerprint()
    shown = client("elmo('info', '--model', 'hf://user/model')")
    assert pretrained.fingerprint() in shown
    assert hub.downloaded("user/model") == []  # all is in the cache


def test_offline_the_cached_files_are_used_or_missing_ones_named(
    hub, client, start, home, files, pretrained
):
    hub.commit("user/cached", files)
    hub.commit("user/other", files)
    address, sentence = "hf://user/cached", "not on this machine, and offline mode is on; load it"
    assert sentence in client(f"fingerprint({address!r}, offline=True)")
    assert client(f"fingerprint({address!r})") == pretrained.fingerprint()
    hub.commit("user/cached", {"README.md": b"another"})
    hub.requests.clear()
    assert client(f"fingerprint({address!r}, offline=True)") == pretrained.fingerprint()
    offline = start(home, HF_HUB_OFFLINE="1")
    assert offline(f"fingerprint({address!r})") == pretrained.fingerprint()
    assert sentence in offline("fingerprint('hf://user/other')")
    assert hub.requests == []
    blob = next(home.glob("hub/models--user--cached/snapshots/*/vocabulary.txt"))
    blob.unlink()
    error = f"DownloadError: {address}: vocabulary.txt of it is not on this machine, and offline"
    assert offline(f"fingerprint({address!r})").startswith(error)


def test_without_a_connection_the_cached_files_are_used(hub, client, pretrained, files):
    hub.commit("user/reachable", files)
    client("fingerprint('hf://user/reachable')")
    client("setattr(constants, 'ENDPOINT', 'http://127.0.0.1:9')")
    cached = client("fingerprint('hf://user/reachable')")
    error = client("fingerprint('hf://user/never-seen')")
    client(f"setattr(constants, 'ENDPOINT', {hub.url!r})")
    assert cached == pretrained.fingerprint()
    assert error.startswith(
        "DownloadError: hf://user/never-seen: not on this machine, and the Hub "
    )
    assert "\n" not in error


def test_a_download_that_breaks_off_goes_on(hub, client, files, pretrained):
    hub.commit("user/broken", files)
    hub.faults["model.safetensors"] = "cut"
    assert client("fingerprint('hf://user/broken')") == pretrained.fingerprint()
    received = len(files["model.safetensors"]) // 2 // 1000 * 1000
    assert f"bytes={received}-" in [asked for _, _, asked in hub.requests]


@pytest.mark.full
def test_after_a_kill_only_missing_files_are_downloaded(
    hub, client, start, home, files, pretrained
):
    hub.commit("user/killed", files)
    hub.faults["model.safetensors"] = "stall"
    victim = start(home)
    print("fingerprint('hf://user/killed')", file=victim.process.stdin, flush=True)
    while hub.faults:
        time.sleep(0.05)
    time.sleep(0.5)  # the small files are done
    victim.process.kill()
    hub.requests.clear()
    assert client("fingerprint('hf://user/killed')") == pretrained.fingerprint()
    assert hub.downloaded("user/killed") == ["model.safetensors"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://user/nothing", "DownloadError: hf://user/nothing: no such repository"),
        ("hf://user/errors@v9", "DownloadError: hf://user/errors@v9: the repository has no such"),
        ("hf://user/gated", "DownloadError: hf://user/gated: its authors want to be asked for"),
        ("hf://user/errors", "FormatError: hf://user/errors: no weights (model.safetensors), wh"),
        ("hf://user/errors/v1", "FormatError: hf://user/errors/v1: no model here; found nothing"),
        ("hf://user/fails", "DownloadError: hf://user/fails: the Hub cannot be reached or broke"),
        ("hf://errors", "InputError: hf://errors: "),
        ("hf://datasets/user/errors", "InputError: hf://datasets/user/errors: a repository of ty"),
    ],
)
def test_mistakes_are_one_sentence(hub, client, files, address, message):
    hub.commit("user/errors", {"config.json": files["config.json"]})
    hub.commit("user/gated", files)
    hub.gated.add("user/gated")
    fails = {**files, "model.safetensors": b"of another length"}
    hub.commit("user/fails", fails)
    hub.faults["model.safetensors"] = "status 500"
    error = client(f"fingerprint({address!r})")
    hub.faults.clear()
    assert error.startswith(message)
    assert "\n" not in error


def test_what_is_pushed_loads_with_the_same_fingerprint(hub, client, tmp_path, pretrained):
    formats.save(pretrained, tmp_path / "with")
    plain = formats.load(make_folder(tmp_path))
    push = f"elmokit.load({str(tmp_path / 'with')!r}).push_to_hub('user/pushed', private=True)"
    assert client(push) == "hf://user/pushed"
    assert "user/pushed" in hub.private
    assert client("fingerprint('hf://user/pushed')") == pretrained.fingerprint()
    command = [
        "push", str(tmp_path), "user/pushed", "--revision", "swahili/2", "--language", "sw",
        "--licence", "CC BY-SA 4.0", "--half",
    ]  # fmt: skip
    assert client(f"elmo(*{command!r})") == "hf://user/pushed@swahili%2F2\n"
    pushed = hub.files("user/pushed", "swahili/2")
    assert "vocabulary.txt" in hub.files("user/pushed")
    assert "vocabulary.txt" not in pushed  # the model has no softmax
    assert len(pushed["model.safetensors"]) < sum(p.numel() for p in plain.model.parameters()) * 3
    assert client("fingerprint('hf://user/pushed@swahili%2F2')") != pretrained.fingerprint()
    data = huggingface_hub.ModelCard(pushed["README.md"].decode()).data
    assert (data.language, data.license) == (["sw"], "cc-by-sa-4.0")
    hub.private.clear()
    assert "is public already" in client(push)
    hub.gated.add("user/denied")
    error = client(push.replace("user/pushed", "user/denied"))
    assert "does not allow it (403 Forbidden: You cannot write here)" in error
    assert "\n" not in error
    for name in ("user/model/x", "user/-"):
        error = client(push.replace("user/pushed", name))
        assert error.startswith(f"InputError: {name}: ")
        assert "\n" not in error


def test_a_card_gets_metadata_unless_it_has_some(tmp_path, pretrained):
    own = "---\nlanguage: sw\nlicense: mit\n---\n# Mine\n\n---\n"
    for number, card in enumerate(("", "# Mine\n\n---\n", own)):
        changed = elmokit.Pretrained(pretrained.model, pretrained.vocabulary, card=card)
        formats.save(changed, tmp_path / str(number))
        text = formats.load(tmp_path / str(number)).card
        assert text.endswith(card)
        assert (text == card) == (card == own)
        data = huggingface_hub.ModelCard(text).data
        if card != own:
            assert data.library_name == "elmokit"
            assert data.pipeline_tag == "feature-extraction"
            assert "elmo" in data.tags
            assert without_metadata(text) == card or card == ""
    assert without_metadata(own) == "# Mine\n\n---\n"


def test_a_card_can_get_other_metadata(tmp_path):
    card = tmp_path / "README.md"
    card.write_text("---\nlicense: other\nlicense_name: Mine\ntags: [elmo]\n---\n# Mine\n")
    hub_module.update_metadata(card, card_facts(["sw"], "MIT"))
    changed = huggingface_hub.ModelCard.load(card)
    expected = {"license": "mit", "tags": ["elmo"], "language": ["sw"]}
    assert (changed.data.to_dict(), changed.text.strip()) == (expected, "# Mine")
    card.write_text("---\ntags: [elmo\n---\n# Mine\n")
    with pytest.raises(elmokit.InputError, match="its first lines are no YAML"):
        hub_module.update_metadata(card, card_facts(["sw"], "MIT"))


def test_the_metadata_of_published_models_are_valid():
    for model in elmokit.models():
        card = with_metadata("# A card", languages=model.languages, licence=model.licence)
        data = huggingface_hub.ModelCard(card, ignore_metadata_errors=False).data
        assert data.to_dict()["language"] == list(model.languages) if model.languages else True
    assert card_facts("no", "GPL-3.0-or-later") == {"language": ["no"], "license": "gpl-3.0"}
    assert card_facts([], "My own") == {"license": "other", "license_name": "My own"}
    norwegian = huggingface_hub.ModelCard(with_metadata("", languages=["no"])).data
    assert norwegian.language == ["no"]
    english = huggingface_hub.ModelCard((formats.ENGLISH / "README.md").read_text("utf-8")).data
    assert (english.language, english.license) == ("en", "cc-by-sa-3.0")


def test_a_missing_extra_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(elmokit.InputError, match=r"pip install 'elmokit\[hub\]'"):
        elmokit.load("hf://user/model")
