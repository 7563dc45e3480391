"""The verbs that ask a language model, from argument, file and stdin."""

import json
import lzma

import numpy as np
import pytest

import elmokit
from made import make_folder
from typed import failed, succeeded

TEXT = "word1 (word2) cat. Word3!\n\nword4 word5\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"), softmax_words=9, size=1.5)


@pytest.fixture(scope="module")
def model(folder):
    return elmokit.load(folder)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def given_by(way, text):
    if way == "file":
        return [text], b""
    if way == "stdin":
        return ["-"], TEXT.encode()
    return [part for line in TEXT.splitlines() for part in ("--text", line)], b""


def test_evaluate_unpacks_its_text_and_takes_a_model_by_its_option(elmo, folder, text, tmp_path):
    packed = tmp_path / "text.txt.xz"
    packed.write_bytes(lzma.compress(TEXT.encode()))
    found = succeeded(elmo("evaluate", folder, packed, "--json"))
    assert found == succeeded(elmo("evaluate", "--model", folder, text, "--json"))
    packed.write_bytes(packed.read_bytes()[:-12])
    failed(elmo("evaluate", folder, packed), "text.txt.xz: cannot be unpacked")


@pytest.mark.parametrize("way", ["file", "stdin", "argument"])
def test_evaluate_takes_a_file_stdin_and_arguments(elmo, way, folder, model, text):
    given, stdin = given_by(way, text)
    found = json.loads(succeeded(elmo("evaluate", folder, *given, "--json", stdin=stdin)))
    expected = model.perplexity(TEXT.splitlines())
    assert found["forward"] == pytest.approx(expected.forward)
    assert found["both"] == pytest.approx(expected.geometric_mean)
    assert (found["words"], found["unknown"], found["predictions"]) == (10, 6, 13)


def test_evaluate_tells_people_and_a_file(elmo, folder, model, text, tmp_path):
    scores = tmp_path / "scores.tsv"
    told = succeeded(elmo("evaluate", folder, text, "--per-sentence", scores))
    expected = model.perplexity(TEXT.splitlines())
    assert f"forward     {expected.forward:,.3f}\n" in told
    assert "words       10\n" in told
    first, *lines = scores.read_text().splitlines()
    assert first.split("\t") == [
        "words", "unknown", "forward", "backward", "perplexity", "sentence"
    ]  # fmt: skip
    rows = [line.split("\t") for line in lines]
    for row, score in zip(rows, model.score(TEXT.splitlines()), strict=True):
        assert row[5].split(" ") == [*score.words]
        assert [int(row[0]), int(row[1])] == [len(score.words), score.unknown]
        assert float(row[2]) == pytest.approx(score.forward.sum(), abs=1e-4)
        assert float(row[3]) == pytest.approx(score.backward.sum(), abs=1e-4)
        assert float(row[4]) == pytest.approx(score.perplexity, rel=1e-3)


def test_evaluate_has_ways(elmo, folder, text):
    def found(*options):
        return json.loads(succeeded(elmo("evaluate", folder, text, "--json", *options)))

    assert found("--tokenizer", "spaces")["predictions"] == 8
    assert found("--state", "carry")["forward"] != pytest.approx(found()["forward"], rel=1e-3)
    assert found("--state", "warm")["forward"] != pytest.approx(found()["forward"], rel=1e-3)
    assert found("--precision", "half")["forward"] == pytest.approx(found()["forward"], rel=1e-2)


def test_a_model_of_one_direction_tells_one(elmo, tmp_path, text):
    folder = make_folder(tmp_path, softmax_words=9, directions=1)
    told = succeeded(elmo("evaluate", folder, text))
    assert "forward" in told
    assert "backward" not in told
    scores = tmp_path / "scores.tsv"
    found = succeeded(elmo("evaluate", folder, text, "--json", "--per-sentence", scores))
    assert json.loads(found)["backward"] is None
    assert scores.read_text().splitlines()[1].split("\t")[3] == ""


@pytest.mark.parametrize("way", ["file", "stdin", "argument"])
def test_predict_takes_a_file_stdin_and_arguments(elmo, way, folder, model, text):
    given, stdin = given_by(way, text)
    lines = succeeded(elmo("predict", *given, "-m", folder, "-k", 3, "--json", stdin=stdin))
    found = [json.loads(line) for line in lines.splitlines()]
    assert [one["text"] for one in found] == TEXT.splitlines()
    for one in found:
        words = [elmokit.Prediction(*guess) for guess in one["words"][0]]
        assert words == model.next_words(one["text"], k=3)


def test_predict_tells_people(elmo, folder, model):
    given = ["-m", folder, "-k", 2, "--text"]
    first, second = (f"  {p:.6f}  {word}" for word, p in model.next_words("word1", k=2))
    assert succeeded(elmo("predict", *given, "word1")) == f"word1\n{first}\n{second}\n"
    before, _ = (f"  {p:.6f}  {word}" for word, p in model.previous_words("word1", k=2))
    told = succeeded(elmo("predict", *given, "word1", "--previous")).splitlines()
    assert told[1] == before
    told = succeeded(elmo("predict", *given, "___ word1 ___", "--fill")).splitlines()
    assert (told[0], told[1], told[4]) == ("___ word1 ___", "  gap 1", "  gap 2")
    assert len(succeeded(elmo("predict", *given, "a ___ b", "--fill")).splitlines()) == 3
    told = succeeded(elmo("predict", *given, "word1", "-k", 100, "--special-tokens"))
    assert "<UNK>" in told
    assert "<S>" in told


def test_predict_draws_sentences(elmo, folder, model):
    given = ["predict", "--text", "word1", "-m", folder, "--sample", 3, "--seed", 4]
    drawn = model.sample("word1", samples=3, seed=4)
    assert succeeded(elmo(*given)).splitlines() == [" ".join(words) for words in drawn]
    assert json.loads(succeeded(elmo(*given, "--json"))) == {"text": "word1", "sentences": drawn}
    ways = ["--temperature", 0.5, "--top-k", 2, "--max-words", 3, "--previous"]
    settings = {"temperature": 0.5, "top_k": 2, "max_words": 3, "direction": "backward"}
    drawn = model.sample("word1", samples=3, seed=4, **settings)
    assert succeeded(elmo(*given, *ways)).splitlines() == [" ".join(words) for words in drawn]


def test_dump_writes_what_is_asked_for(elmo, folder, model, text, tmp_path):
    def dumped(*arguments):
        done = elmo("dump", *arguments, "-m", folder)
        assert succeeded(done) == ""
        return done[1]

    assert "9 words" in dumped("softmax", "--out", tmp_path / "s.npz")
    assert np.load(tmp_path / "s.npz")["weight"].shape == (9, 6)
    assert "9 words" in dumped("words", "--out", tmp_path / "w.txt")
    assert (tmp_path / "w.txt").read_text().startswith("9 6\n<S> ")
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("cat\nword1\n")
    assert "2 words" in dumped("words", vocabulary, "--out", tmp_path / "v.npy")
    assert np.load(tmp_path / "v.npy").shape == (2, 6)
    assert "3 sentences" in dumped("states", text, "--out", tmp_path / "t.npz")
    assert "1 sentences" in dumped("states", "--text", "a b", "-o", tmp_path / "u.npz")
    assert np.load(tmp_path / "u.npz")["0/memory"].shape == (2, 2, 4, 12)


def test_mistakes_are_one_line(elmo, folder, model_folder, text, tmp_path):
    failed(elmo("evaluate", folder, tmp_path / "no.txt"), "no.txt: No such file or directory")
    failed(elmo("evaluate", folder), "a folder, expected a file of text; name one after the model")
    failed(elmo("evaluate"), "no INPUT given; name a file, - for stdin, or give --text")
    failed(elmo("evaluate", folder, "-"), "no sentences were given")
    failed(elmo("evaluate", model_folder, text), "the model has no softmax, so it has vectors but")
    failed(elmo("evaluate", folder, text, "--per-sentence", text), "text.txt: exists already")
    scores = tmp_path / "scores.tsv"
    failed(elmo("evaluate", folder, "-", "--per-sentence", scores), "no sentences were given")
    assert not scores.exists()
    failed(elmo("predict", "-m", folder, "--fill", "--text", "a b"), "'a b' has no gap; write ___")
    failed(elmo("dump", "softmax", "-m", folder, "-o", text), "text.txt: exists already")
    failed(elmo("dump", "states", "-m", folder, "-o", tmp_path / "x.npz"), "no INPUT given")


def test_wrong_usage_exits_with_2(elmo, folder, text, tmp_path):
    failed(elmo("evaluate", folder, folder, text), "give MODEL and FILE, FILE alone", code=2)
    failed(elmo("predict", text, "--fill", "--previous"), "choose --fill alone", code=2)
    failed(elmo("predict", text, "-k", 0), "Invalid value for '-k'", code=2)
    failed(
        elmo("predict", text, "--fill", "--special-tokens"),
        "--special-tokens is for the words after",
        code=2,
    )
    failed(elmo("predict", text, "--previous", "--state", "carry"), "nothing is carried", code=2)
    failed(elmo("dump", "softmax", "-m", folder), "name the file to make", code=2)
    failed(elmo("dump", "nothing", "-o", tmp_path / "x"), "nothing", code=2)
    failed(elmo("dump", "softmax", text, "-o", tmp_path / "x.npy"), "needs no INPUT", code=2)
