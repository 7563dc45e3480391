"""Commands that ask the language loaded."""

import json
import lzma

import pytest

from random_models import make_folder
from typed import failed, succeeded


def test_evaluate_reads_compressed_text_and_takes_the_option_model(elmo, folder, text, tmp_path):
    packed = tmp_path / "text.txt.xz"
    packed.write_bytes(lzma.compress(text.read_bytes()))
    facts = succeeded(elmo("evaluate", folder, packed, "--json"))
    assert facts == succeeded(elmo("evaluate", "--model", folder, text, "--json"))
    packed.write_bytes(packed.read_bytes()[:-12])
    failed(elmo("evaluate", folder, packed), "text.txt.xz: cannot be unpacked")


def test_evaluate_prints_the_perplexity_as_json(elmo, folder, loaded, text):
    facts = json.loads(succeeded(elmo("evaluate", folder, text, "--json")))
    expected = loaded.perplexity(text.read_text().splitlines())
    assert facts["forward"] == pytest.approx(expected.forward)
    assert facts["geometric_mean"] == pytest.approx(expected.geometric_mean)
    assert (facts["words"], facts["unknown"], facts["predictions"]) == (10, 6, 13)


def test_evaluate_prints_facts_and_writes_a_line_for_each_sentence(
    elmo, folder, loaded, text, tmp_path
):
    scores = tmp_path / "scores.tsv"
    shown = succeeded(elmo("evaluate", folder, text, "--per-sentence", scores))
    expected = loaded.perplexity(text.read_text().splitlines())
    assert f"forward         {expected.forward:,.3f}\n" in shown
    assert f"geometric mean  {expected.geometric_mean:,.3f}\n" in shown
    assert "words           10\n" in shown
    first, *lines = scores.read_text().splitlines()
    assert first.split("\t") == [
        "words", "unknown", "forward", "backward", "perplexity", "sentence"
    ]  # fmt: skip
    rows = [line.split("\t") for line in lines]
    for row, score in zip(rows, loaded.score(text.read_text().splitlines()), strict=True):
        assert row[5].split(" ") == [*score.words]
        assert [int(row[0]), int(row[1])] == [len(score.words), score.unknown]
        assert float(row[2]) == pytest.approx(score.forward.sum(), abs=1e-4)
        assert float(row[3]) == pytest.approx(score.backward.sum(), abs=1e-4)
        assert float(row[4]) == pytest.approx(score.perplexity, rel=1e-3)


def test_evaluate_obeys_its_options(elmo, folder, text):
    def evaluated(*options):
        return json.loads(succeeded(elmo("evaluate", folder, text, "--json", *options)))

    assert evaluated("--tokenizer", "spaces")["predictions"] == 8
    assert evaluated("--state", "carry")["forward"] != pytest.approx(
        evaluated()["forward"], rel=1e-3
    )
    assert evaluated("--state", "warm")["forward"] != pytest.approx(
        evaluated()["forward"], rel=1e-3
    )
    assert evaluated("--precision", "half")["forward"] == pytest.approx(
        evaluated()["forward"], rel=1e-2
    )


def test_a_model_of_one_direction_has_one_perplexity(elmo, tmp_path, text):
    folder = make_folder(tmp_path, softmax_words=9, directions=1)
    shown = succeeded(elmo("evaluate", folder, text))
    assert "forward" in shown
    assert "backward" not in shown
    scores = tmp_path / "scores.tsv"
    facts = succeeded(elmo("evaluate", folder, text, "--json", "--per-sentence", scores))
    assert json.loads(facts)["backward"] is None
    assert scores.read_text().splitlines()[1].split("\t")[3] == ""


def test_predict_prints_words_with_their_probabilities(elmo, folder, loaded):
    given = ["-m", folder, "-k", 2, "--text"]
    first, second = (f"  {p:.6f}  {word}" for word, p in loaded.next_words("word1", k=2))
    assert succeeded(elmo("predict", *given, "word1")) == f"word1\n{first}\n{second}\n"
    before, _ = (f"  {p:.6f}  {word}" for word, p in loaded.previous_words("word1", k=2))
    shown = succeeded(elmo("predict", *given, "word1", "--previous")).splitlines()
    assert shown[1] == before
    shown = succeeded(elmo("predict", *given, "___ word1 ___", "--fill")).splitlines()
    assert (shown[0], shown[1], shown[4]) == ("___ word1 ___", "  gap 1", "  gap 2")
    assert len(succeeded(elmo("predict", *given, "a ___ b", "--fill")).splitlines()) == 3
    shown = succeeded(elmo("predict", *given, "word1", "-k", 100, "--special-tokens"))
    assert "<UNK>" in shown
    assert "<S>" in shown


def test_predict_samples_sentences(elmo, folder, loaded):
    given = ["predict", "--text", "word1", "-m", folder, "--sample", 3, "--seed", 4]
    drawn = loaded.sample("word1", samples=3, seed=4)
    assert succeeded(elmo(*given)).splitlines() == [" ".join(words) for words in drawn]
    assert json.loads(succeeded(elmo(*given, "--json"))) == {"text": "word1", "sentences": drawn}
    ways = ["--temperature", 0.5, "--top-k", 2, "--max-words", 3, "--previous"]
    settings = {"temperature": 0.5, "top_k": 2, "max_words": 3, "direction": "backward"}
    drawn = loaded.sample("word1", samples=3, seed=4, **settings)
    assert succeeded(elmo(*given, *ways)).splitlines() == [" ".join(words) for words in drawn]


def test_mistakes_are_one_line(elmo, folder, model_folder, text, tmp_path):
    failed(elmo("evaluate", folder, tmp_path / "no.txt"), "no.txt: No such file or directory")
    failed(elmo("evaluate", folder), "a folder, expected a file of text; name one after the model")
    failed(elmo("evaluate", folder, "-"), "no sentences were given")
    failed(elmo("evaluate", model_folder, text), "the model has no softmax, so it has vectors but")
    failed(elmo("evaluate", folder, text, "--per-sentence", text), "text.txt: exists already")
    scores = tmp_path / "scores.tsv"
    failed(elmo("evaluate", folder, "-", "--per-sentence", scores), "no sentences were given")
    assert not scores.exists()
    failed(elmo("predict", "-m", folder, "--fill", "--text", "a b"), "'a b' has no gap; write ___")


def test_wrong_usage_exits_with_2(elmo, folder, text, tmp_path):
    failed(elmo("evaluate", folder, folder, text), "give MODEL and FILE, FILE alone", code=2)
    failed(elmo("evaluate"), "no FILE given; name a file, - for stdin, or give --text", code=2)
    twice = elmo("evaluate", "-m", folder, "english", text)
    failed(twice, "the model was given twice, as english and by --model", code=2)
    failed(elmo("predict", text, "--sample", 2, "-k", 10), "-k is not for --sample", code=2)
    failed(elmo("predict", text, "--fill", "--previous"), "choose --fill alone", code=2)
    failed(elmo("predict", text, "-k", 0), "invalid value for '-k'", code=2)
    failed(
        elmo("predict", text, "--fill", "--special-tokens"),
        "--special-tokens is for the words after",
        code=2,
    )
    failed(elmo("predict", text, "--previous", "--state", "carry"), "--state carry is for", code=2)
    failed(elmo("predict", text, "--temperature", 0.5), "--seed need --sample", code=2)
