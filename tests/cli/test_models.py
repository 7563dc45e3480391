"""Commands about model files."""

import json

import numpy as np
import pytest

import elmokit
from faulty_server import faulty_server
from manylangs_models import make_manylangs
from typed import failed, succeeded


@pytest.mark.parametrize("source", ["folder", "pair"])
def test_info_shows_what_a_model_is(elmo, folder, source):
    given = [folder] if source == "folder" else [folder / "options.json", folder / "weights.hdf5"]
    shown = succeeded(elmo("info", *given))
    fingerprint = elmokit.load(folder).pretrained.fingerprint()
    for fact in ("layers              3", "dim                 12", "vocabulary          9"):
        assert fact in shown
    assert json.loads(succeeded(elmo("info", *given, "--json")))["fingerprint"] == fingerprint
    assert fingerprint in shown


def test_info_says_what_runs_the_lstms(elmo, folder):
    kernel = elmokit.load(folder).kernel
    assert f"kernel              {kernel}\n" in succeeded(elmo("info", folder))


def test_convert_goes_both_ways(elmo, folder, tmp_path):
    succeeded(elmo("convert", folder, tmp_path / "ours"))
    succeeded(elmo("convert", tmp_path / "ours", tmp_path / "back", "--format", "bilm-tf"))
    pair = [folder / "options.json", "--weights", folder / "weights.hdf5"]
    succeeded(elmo("convert", *pair, tmp_path / "half", "--half"))
    fingerprints = {
        elmokit.load(path).pretrained.fingerprint()
        for path in (folder, tmp_path / "ours", tmp_path / "back")
    }
    assert len(fingerprints) == 1


def test_layers_are_aligned_when_converting_or_embedding(elmo, folder, tmp_path):
    path, matrix = tmp_path / "align.npz", np.diag(np.arange(12.0))
    np.savez(path, **{"1": matrix})
    succeeded(elmo("convert", folder, tmp_path / "aligned", "--align", path))
    assert "aligned layers      [1]" in succeeded(elmo("info", tmp_path / "aligned"))
    expected = elmokit.load(folder, align={1: matrix}).encode(["A cat ."])
    for model in ([folder, "--align", path], [tmp_path / "aligned"]):
        out = tmp_path / f"{len(model)}.npy"
        succeeded(elmo("encode", "--text", "A cat .", "--out", out, "--model", *model))
        np.testing.assert_array_equal(np.load(out), expected)


def test_a_model_of_elmoformanylangs_runs_in_every_command(elmo, text, tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    make_manylangs(folder)
    shown = succeeded(elmo("info", folder))
    assert "input               characters, 50 for each word; words" in shown
    assert "lexicon entries     [41, 12]" in shown
    succeeded(elmo("convert", folder, tmp_path / "ours"))
    for model in (folder, tmp_path / "ours"):
        assert "2 sentences" in elmo("embed", text, model / "out.h5", "--model", model)[1]
        assert len(succeeded(elmo("encode", "--text", "the cat", "-m", model)).split("\t")) == 12
        succeeded(elmo("export", "states", text, "-m", model, "-o", model / "states.npz"))
        for command in ("predict", "score"):
            failed(elmo(command, "--text", "the cat", "-m", model), "the model has no softmax")
    assert (folder / "out.h5").stat().st_size == (tmp_path / "ours" / "out.h5").stat().st_size
    failed(elmo("convert", folder, tmp_path / "x", "--format", "bilm-tf"), "bilm-tf's files cannot")


def test_export_writes_softmax_words_and_states(elmo, folder, text, tmp_path):
    def exported(*arguments):
        done = elmo("export", *arguments, "-m", folder)
        assert succeeded(done) == ""
        return done[1]

    assert "9 words" in exported("softmax", "--out", tmp_path / "s.npz")
    assert np.load(tmp_path / "s.npz")["weight"].shape == (9, 6)
    assert "9 words" in exported("words", "--out", tmp_path / "w.txt")
    assert (tmp_path / "w.txt").read_text().startswith("9 6\n<S> ")
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("cat\nword1\n")
    assert "2 words" in exported("words", vocabulary, "--out", tmp_path / "v.npy")
    assert np.load(tmp_path / "v.npy").shape == (2, 6)
    assert "3 sentences" in exported("states", text, "--out", tmp_path / "t.npz")
    assert len(np.load(tmp_path / "t.npz").files) == 9


def test_export_writes_onnx(elmo, folder, tmp_path, monkeypatch):
    pytest.importorskip("onnx", reason="needs elmokit[onnx]")
    path = tmp_path / "model.onnx"
    done = elmo("export", folder, path)
    assert succeeded(done) == ""
    assert f"{path}: 0.0 MB" in done[1]
    size = path.stat().st_size
    for options in ([], ["--int8"], ["--softmax"]):
        other = tmp_path / f"other{len(options) and options[0]}.onnx"
        succeeded(elmo("export", "onnx", "-m", folder, "-o", other, *options))
        assert (other.stat().st_size == size) == (not options)
    for arguments, message in [
        ([folder, path, "--model", folder], "nothing to say to --out and --model"),
        (["words", "--int8", "-o", tmp_path / "x.txt"], "are for ONNX alone"),
        (["onnx", "in.txt", "-o", tmp_path / "x.onnx"], "onnx needs no INPUT"),
        ([folder, "-o", tmp_path / "x.onnx"], "is not one of 'softmax', 'words', 'states', 'onnx'"),
    ]:
        failed(elmo("export", *arguments), message, code=2)
    failed(elmo("export", folder, path), "exists already")
    monkeypatch.setattr("elmokit.onnx_export._MAX_BYTES_IN_FILE", 1000)
    split = tmp_path / "split.onnx"
    told = elmo("export", folder, split)[1]
    assert f"{split}: 0.0 MB, with split.onnx.data" in told


def test_mistakes_are_one_line(elmo, folder, text, tmp_path):
    failed(elmo("info", text), "one file of two; give the options file and the weights file")
    failed(elmo("info", text, text, text), "give a folder, a zip, or two files", code=2)
    failed(elmo("convert", folder, tmp_path), "exists already; give the name of a new folder")
    failed(elmo("export", "softmax", "-m", folder, "-o", text), "text.txt: exists already")
    failed(elmo("export", "states", "-m", folder, "-o", tmp_path / "x.npz"), "no INPUT given", 2)
    failed(elmo("export", "softmax", "-m", folder), "missing option", code=2)
    failed(elmo("export"), "'WHAT'", code=2)
    failed(elmo("export", "nothing", "-o", tmp_path / "x"), "nothing", code=2)
    failed(elmo("export", "softmax", text, "-o", tmp_path / "x.npy"), "needs no INPUT", code=2)


def test_models_lists_and_searches_published_models(elmo):
    header, *rows = succeeded(elmo("models")).splitlines()
    assert header.split() == ["name", "language", "size", "here", "description"]
    assert len(rows) >= 90
    english = next(row for row in rows if row.startswith("english "))
    assert english.split()[:3] == ["english", "English", "yes"]
    original = next(row for row in rows if row.startswith("original "))
    assert original.split()[:5] == ["original", "English", "374", "MB", "1"]
    assert "manylangs-zh " in succeeded(elmo("models", "chinese"))
    assert "manylangs-pt " in succeeded(elmo("models", "pt"))  # a language before an alias
    by_language = succeeded(elmo("models", "--language", "german", "--json"))
    assert "de-tsystems" in [model["name"] for model in json.loads(by_language)]
    failed(elmo("models", "klingon"), "no model fits; elmo models without words lists all")


def test_models_shows_all_about_one(elmo):
    shown = succeeded(elmo("models", "Elmo-Small"))
    for line in (
        "name            small",
        "aliases         elmo-small, en-small, elmo_2x1024",
        "licence         not stated",
        "tokenizer       moses",
        "layers          3",
        "bytes           54,402,456",
        "hashes          weights.hdf5 sha256:747ba97abce8",
        "citation        Peters et al.: Deep contextualized word representations. NAACL 2018",
        "addresses       https://allennlp.s3.amazonaws.com/models/elmo/2x1024_128",
        "                https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/2x1024_128",
    ):
        assert f"{line}" in shown, line
    assert "here" not in shown
    model = json.loads(succeeded(elmo("models", "small", "--json")))
    assert (model["name"], model["here"], model["language"]) == ("small", None, ["English"])


def test_download_and_every_command_take_names(elmo, folder, text, tmp_path, monkeypatch):
    with faulty_server() as server:
        for name in ("options.json", "weights.hdf5"):
            server.files[f"/medium/{name}"] = (folder / name).read_bytes()
        monkeypatch.setenv("ELMOKIT_MIRROR", server.url)
        monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
        failed(elmo("download", "medium"), "medium: not on this machine, and offline mode is on")
        monkeypatch.setenv("ELMOKIT_OFFLINE", "")
        failed(elmo("embed", text, "x", "-m", "medium", "--offline"), "offline mode is on; put")
        target = tmp_path / "cache" / "medium"
        assert succeeded(elmo("download", "medium", "english")) == (
            f"medium: {target}\nenglish: {elmokit.formats.ENGLISH}\n"
        )
    fingerprint = elmokit.load(folder).pretrained.fingerprint()
    assert fingerprint in succeeded(elmo("info", "medium"))
    assert fingerprint in succeeded(elmo("info", "--model", "elmo-medium", "--offline"))
    succeeded(elmo("convert", "medium", tmp_path / "ours", "--offline"))
    assert elmokit.load(tmp_path / "ours").pretrained.fingerprint() == fingerprint
    failed(elmo("info", "mediun"), "mediun: no such file or folder, and no model of that name; did")
    failed(elmo("download", "mediun"), "did you mean medium")


def test_addresses_that_fail_are_on_lines_of_their_own(elmo, monkeypatch):
    def fail(*_, **__):
        raise elmokit.DownloadError(
            "a: b cannot be downloaded: one is gone; two is gone; try again"
        )

    monkeypatch.setattr("elmokit.download", fail)
    expected = "elmo: a: b cannot be downloaded:\n  one is gone\n  two is gone\n  try again\n"
    assert elmo("download", "a")[1:] == (expected, 1)
