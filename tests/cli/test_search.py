"""Commands that search and draw."""

import json
import sqlite3
import sys
from contextlib import closing

import pytest

import elmokit
from elmokit.threads import using_threads
from random_models import make_folder
from typed import failed, succeeded

TEXT = "He will play the violin. She was late.\nThe children play in the street.\n银行 play\n"


@pytest.fixture(autouse=True)
def _one_thread():
    with using_threads(1):
        yield


@pytest.fixture
def directory(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text(TEXT, "utf-8")
    (tmp_path / "new.txt").write_text("Something new.\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def built(elmo, directory, model_folder):
    _, err, code = elmo("index", "build", "text.txt", "--out", "index", "-m", model_folder)
    assert (err, code) == ("index: 4 passages, 4 vectors (flat)\n", 0)
    return "index"


@pytest.fixture
def search(elmo, built, model_folder):
    def run(*arguments, index=built):
        return elmo("search", index, *arguments, "-m", model_folder)

    return run


def test_search_prints_file_line_and_text(search):
    first, second = succeeded(search("She was late.", "-k", "2", "--mode", "semantic")).splitlines()
    assert first.endswith("  2  text.txt:1  She was late.")
    assert float(first.split()[0]) == pytest.approx(1, abs=2e-3)
    assert "text.txt:" in second
    hit = json.loads(succeeded(search("银行 play", "-k", "1", "--json")))
    assert hit["text"] == "银行 play"
    assert (hit["line"], hit["start"], hit["end"]) == (3, 0, 7)
    assert hit["bm25"] > 0 < hit["word_match"]


def test_a_search_has_modes_and_is_limited_to_files(elmo, search, model_folder):
    assert succeeded(search("early", "--mode", "lexical")) == ""
    assert "She was late." in succeeded(search("LATE", "--mode", "lexical"))
    assert len(succeeded(search("nothing alike")).splitlines()) == 4  # hybrid
    failed(search("late", "--mode", "bm25"), "'bm25' is not one of", 2)
    failed(search("late", "--mode", "lexical", "--word", "late"), "--mode lexical was given", 2)
    succeeded(elmo("index", "add", "index", "new.txt", "-m", model_folder))
    output = succeeded(search("late", "--file", "new.*"))
    assert [line.split("  ")[2] for line in output.splitlines()] == ["new.txt:1"]
    failed(search("late", "--file", "*.pdf"), "no file of the index matches *.pdf")


def test_an_index_of_0_2_is_upgraded(elmo, search, model_folder):
    with closing(sqlite3.connect("index/passages.sqlite")) as connection:
        connection.execute("DROP TABLE passage_terms")
        connection.execute("DROP TABLE lexical_part")
    output, told, code = search("late")
    assert (len(output.splitlines()), code) == (4, 0)
    assert "has no lexical part, so only meaning counts; add it: elmo index upgrade index" in told
    failed(search("late", "--mode", "lexical"), "no lexical part for mode 'lexical'")
    assert "no lexical part" in succeeded(elmo("index", "info", "index"))
    _, told, code = elmo("index", "upgrade", "index", "-m", model_folder)
    assert (told, code) == ("index: 4 passages can be searched by words, too\n", 0)
    assert "She was late." in succeeded(search("LATE", "--mode", "lexical"))


def test_an_index_says_how_it_was_built(elmo, built, model_folder):
    output = succeeded(elmo("index", "info", built))
    assert "passages    4\n" in output
    assert "unit        sentences\n" in output
    facts = json.loads(succeeded(elmo("index", "info", built, "--json")))
    assert facts["model"] == elmokit.load(model_folder).pretrained.fingerprint()
    assert (facts["kind"], facts["tokenizer"]) == ("flat", "moses")
    failed(elmo("index", "info", "none"), "none: no index there")


def test_few_vectors_are_not_whitened(elmo, directory, model_folder):
    build = "index", "build", "new.txt", "-o", "few", "-m", model_folder
    assert "so few vectors cannot be whitened" in elmo(*build)[1]
    assert "whitening   none\n" in succeeded(elmo("index", "info", "few"))
    score = succeeded(elmo("search", "few", "Something new.", "-m", model_folder)).split()[0]
    assert float(score) == pytest.approx(1, abs=2e-3)


def test_passages_are_added_and_deleted(elmo, search, model_folder):
    _, err, _ = elmo("index", "add", "index", "new.txt", "-m", model_folder)
    assert err == "index: 1 passage added, 5 in all\n"
    assert "new.txt:1" in succeeded(search("Something new.", "-k", "1"))
    _, err, _ = elmo("index", "delete", "index", "2", "--file", "new.txt", "-m", model_folder)
    assert err == "index: 2 passages deleted, 3 in all\n"
    assert "new.txt" not in succeeded(search("Something new."))
    failed(elmo("index", "delete", "index", "-m", model_folder), "nothing to delete: give ids", 2)
    failed(elmo("index", "delete", "index", "2", "-m", model_folder), "no passage has the id 2")


def test_occurrences_of_a_word_are_found(elmo, search, directory, model_folder):
    line = TEXT.encode()
    build = "index", "build", "-", "-o", "w", "--words", "--kind", "hnsw", "-m", model_folder
    succeeded(elmo(*build, stdin=line))
    output = succeeded(search("--word", "play", "He will play the violin.", "-k", "2", index="w"))
    assert output.splitlines()[0].endswith("  -:1  play  He will play the violin.")
    assert output.count("  play  ") == 2
    any_word = search("--word", "play", "--any", "We play.", "--json", "-k", "9", index="w")
    assert len({json.loads(line)["word"] for line in succeeded(any_word).splitlines()}) > 3
    failed(search("--word", "sing", "We play.", index="w"), "'sing' is not a word of the")
    failed(search("--word", "sing", "We sing.", index="w"), "'sing' does not occur in the index")
    failed(search("We play.", index="w"), "an index of words; give a word")


def test_mistakes_with_an_index_are_one_line(elmo, search, directory, model_folder, monkeypatch):
    (directory / "other").mkdir()
    other = make_folder(directory / "other", size=1.3)
    failed(elmo("search", "index", "play", "-m", other), "built with another model")
    failed(search("play", index="none"), "none: no index there; build one first")
    failed(search("--any", "play"), "--any was given without --word", 2)
    failed(search("play", "-k", "0"), "-k", code=2)
    failed(search("na\udcefve"), "not UTF-8; does the terminal use another encoding?")
    delete = "index", "delete", "index", "-m", model_folder
    failed(elmo(*delete, "9" * 30), f"no passage has the id {'9' * 30}")
    failed(elmo(*delete, "--file", "na\udcefve"), r"no passage of na\xefve is in the index")
    build = "index", "build", "text.txt", "-m", model_folder
    failed(elmo(*build, "--out", "index"), "an index already")
    failed(elmo(*build, "--out", "text.txt"), "text.txt: is a file, expected the name of a new")
    failed(elmo(*build, "--out", "i", "--words", "--paragraphs"), "expected one of them", 2)
    failed(elmo(*build, "--out", "i", "--layers", "top1"), "did you mean top?", 2)
    failed(elmo("index", "build", "no.txt", "-o", "i", "-m", model_folder), "no.txt: No such file")
    (directory / "index" / "vectors.faiss").write_bytes(b"")
    failed(search("play"), "FAISS cannot read it")
    monkeypatch.setitem(sys.modules, "faiss", None)
    failed(elmo(*build, "--out", "i"), "searching needs FAISS: pip install 'elmokit[search]'")
    assert not (directory / "i").exists()


def test_an_index_may_be_in_a_database(elmo, directory, postgres, model_folder):
    url, m = postgres.address("typed"), ("-m", model_folder)
    _, err, code = elmo("index", "build", "text.txt", "--store", url, *m)
    assert (err.endswith("index=typed: 4 passages, 4 vectors (flat)\n"), code) == (True, 0)
    output = succeeded(elmo("search", url, "She was late.", "-k", "1", *m))
    assert output.endswith("  2  text.txt:1  She was late.\n")
    assert elmo("index", "add", url, "new.txt", *m)[1].endswith(": 1 passage added, 5 in all\n")
    assert elmo("index", "delete", url, "2", *m)[1].endswith(": 1 passage deleted, 4 in all\n")
    failed(elmo("index", "build", "text.txt", "--store", url, *m), "an index already")


def test_mistakes_with_a_database_are_one_line_without_its_password(
    elmo, directory, model_folder, monkeypatch
):
    build, nowhere = ("index", "build", "text.txt", "-m", model_folder), "postgresql://u:pw@h:x/d"
    one, of_its_kind = "expected one of --out DIR and --store URL", "--out takes a folder, and"
    failed(elmo(*build), one, code=2)
    failed(elmo(*build, "--out", "a", "--store", nowhere), one, code=2)
    failed(elmo(*build, "--out", nowhere), of_its_kind, code=2)
    failed(elmo(*build, "--store", "folder"), of_its_kind, code=2)
    for result in (
        elmo(*build, "--store", nowhere),
        elmo("search", "postgresql://u:pw@127.0.0.1:1/d", "play", "-m", model_folder),
    ):
        assert "pw" not in result[1]
        failed(result, "URL of the database cannot be read" if "read" in result[1] else "answer")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    failed(elmo("search", nowhere, "play", "-m", model_folder), "pip install 'elmokit[postgres]'")


def test_contexts_of_a_word_are_drawn(elmo, directory, model_folder):
    options = "--projector", "projector", "-m", model_folder
    _, err, code = elmo("plot", "contexts", "play", "text.txt", *options)
    assert (err, code) == ("contexts.svg: 3 occurrences of play, cluster 1, cluster 2\n", 0)
    svg = (directory / "contexts.svg").read_text("utf-8")
    assert "layer 2" in svg
    assert "银 行 play" in svg  # as Moses splits it
    assert (directory / "projector" / "vectors.tsv").read_text().count("\n") == 3


def test_sentences_are_compared_and_curves_drawn(elmo, directory, model_folder):
    sentences = "He sat.", "The cat sat down."
    succeeded(
        elmo("plot", "similarity", *sentences, "-o", "s.png", "--layer", "1", "-m", model_folder)
    )
    assert (directory / "s.png").read_bytes().startswith(b"\x89PNG")
    (directory / "log.jsonl").write_text('{"epoch": 1, "loss": 2.5, "scores": {"f1": 0.5}}\n')
    _, err, code = elmo("plot", "training", ".")
    assert (err, code) == ("training.svg: loss, scores\n", 0)
    assert "f1" in (directory / "training.svg").read_text("utf-8")


def test_mistakes_with_plots_are_one_line(elmo, directory, model_folder, monkeypatch):
    contexts = "plot", "contexts", "play", "text.txt", "-m", model_folder
    failed(elmo(*contexts, "-o", "a.pdf"), "a.pdf: expected a file that ends in .svg or .png")
    failed(elmo(*contexts, "--layer", "3"), "there is no layer 3; the model has 0 to 2")
    failed(elmo(*contexts, "--tsne"), "t-SNE needs five vectors or more")
    failed(elmo("plot", "contexts", "\udcef", "text.txt", "-m", model_folder), "not UTF-8")
    failed(elmo("plot", "similarity", "a", "\udcef", "-m", model_folder), "not UTF-8")
    failed(
        elmo("plot", "contexts", "plays", "text.txt", "-m", model_folder), "'plays' does not occur"
    )
    failed(elmo("plot", "training", "none"), "name the folder of elmo pretrain or elmo train")
    failed(elmo("plot", "layer-weights", "none"), "no task.json")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    failed(elmo(*contexts), "plots need matplotlib: pip install 'elmokit[plot]'")


def test_an_index_is_built_of_shards(elmo, folder, text, tmp_path):
    options = ["--layers", "mean", "--pooling", "mean", "--workers", "1"]
    succeeded(elmo("embed", text, f"{tmp_path}/vectors/", "-m", folder, *options))
    out = tmp_path / "index"
    _, err, code = elmo("index", "build", f"{tmp_path}/vectors", "-o", out, "-m", folder)
    assert (code, err.splitlines()[0]) == (0, f"{out}: 2 passages, 2 vectors (flat)")
    found = succeeded(elmo("search", out, "word4 word5", "-m", folder, "-k", 1, "--json"))
    assert "word4 word5" in found
    given = ("index", "build", tmp_path / "vectors", "-o", tmp_path / "other", "-m", folder)
    failed(elmo(*given, "--layers", "top"), "--layers is not for shards, whose vectors are", 2)
