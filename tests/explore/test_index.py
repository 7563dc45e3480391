"""Text is indexed, searched, added and forgotten; nothing is lost, nothing is mixed up."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest

import elmokit
from elmokit.claim import Claim
from elmokit.errors import FormatError, InputError, OutputError
from elmokit.explore.build import build_index
from elmokit.explore.index import Index
from made import make_folder

LINES = [
    "He will play the violin. She was late.",
    "The children play in the street.",
    "A play in three acts was performed. It rained $ 5.",
    "我们 在 北京 。",
]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    return path


@pytest.fixture
def index(model, text, tmp_path):
    with build_index(model, [str(text)], tmp_path / "index") as built:
        yield built


@pytest.fixture
def uses(model, text, tmp_path):
    with build_index(model, [str(text)], tmp_path / "uses", unit="words", layers="top") as built:
        yield built


def texts_of(hits):
    return [hit.found.text for hit in hits]


def test_a_passage_is_nearest_to_itself(index):
    hits = index.search("The children play in the street.", k=3)
    assert len(hits) == 3
    assert hits[0].score == pytest.approx(1, abs=2e-3)
    found = hits[0].found
    assert (found.line, found.start, found.end) == (2, 0, len(LINES[1]))
    assert [*json.loads(json.dumps(hits[0].record()))][:3] == ["score", "id", "file"]


@pytest.mark.parametrize("layers", ["mean", "top", "concat", 0])
@pytest.mark.parametrize("way", ["zca", "none"])
def test_a_search_is_brute_force_over_encode(model, text, tmp_path, layers, way):
    with build_index(
        model, [str(text)], tmp_path / "i", unit="paragraphs", layers=layers, whitening=way
    ) as index:
        vectors = model.encode([*LINES, "a violin"], layers=layers)
        if way == "none":
            changed = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        else:
            changed = index.whitening.apply(vectors)
        wanted = changed[:-1] @ changed[-1]
        hits = index.search("a violin", k=10)
        assert [hit.found.line - 1 for hit in hits] == np.argsort(-wanted).tolist()
        np.testing.assert_allclose([hit.score for hit in hits], -np.sort(-wanted), atol=5e-3)


def test_an_opened_index_is_the_built_one(index, model):
    before = index.search("a late violin")
    with Index.open(index.folder, model) as opened:
        assert opened.search("a late violin") == before
        assert len(opened) == 6
    names = sorted(path.name for path in index.folder.iterdir())
    assert names == ["index.json", "passages.sqlite", "vectors.faiss", "whitening.npy"]


def test_files_are_added_and_passages_deleted_for_good(index, model, tmp_path):
    new = tmp_path / "new.txt"
    new.write_text("Quite another thing! The end.\n")
    assert index.add([str(new)]) == 2
    with pytest.raises(InputError, match=r"new.txt: in the index already; delete it first"):
        index.add([str(new)])
    hit = index.search("Quite another thing!", k=1)[0]
    assert hit.found.text == "Quite another thing!"
    index.delete([hit.found.id])
    with Index.open(index.folder, model) as opened:
        for each in (index, opened):
            assert "Quite another thing!" not in texts_of(each.search("Quite another thing!"))
            assert len(each) == 7
        with pytest.raises(InputError, match=f"no passage has the id {hit.found.id}"):
            opened.delete([1, hit.found.id])
        opened.delete(opened.passages_of(str(new)))
        assert len(opened) == 6
        with pytest.raises(InputError, match="no passage of"):
            opened.passages_of(str(new))
        assert opened.add([str(new)]) == 2  # as if it had never been there
        assert texts_of(opened.search("The end.", k=1)) == ["The end."]


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_every_kind_of_index_is_opened_changed_and_opened_again(model, text, tmp_path, kind):
    build_index(model, [str(text)], tmp_path / "i", kind=kind).close()
    (tmp_path / "new.txt").write_text("Quite another thing!\n")
    with Index.open(tmp_path / "i", model) as index:
        index.add([str(tmp_path / "new.txt")])
        index.delete([1])
    with Index.open(tmp_path / "i", model) as index:
        assert index.recipe.kind == kind
        assert texts_of(index.search("Quite another thing!", k=1)) == ["Quite another thing!"]
        assert "He will play the violin." not in texts_of(index.search(LINES[0], k=20))


def test_an_add_that_fails_leaves_the_index_as_it_was(index, model, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"A good line that is far away from the bad one.\n" * 3 + b"\xff\n")
    model.tokens_per_batch = 1  # the good lines are added before the bad one is met
    before = index.search("a bad line", k=20)
    with pytest.raises(InputError, match="line 4: not UTF-8"):
        index.add([str(bad)])
    assert index.search("a bad line", k=20) == before
    bad.write_bytes(b"A good line.\n")
    index.add([str(bad)])
    with Index.open(index.folder, model) as opened:
        assert texts_of(opened.search("A good line.", k=1)) == ["A good line."]
        assert len(opened.search("A good line.", k=50)) == 7


def test_vectors_that_the_catalog_does_not_know_are_passed_over(index, model):
    index.store.add(index.encode(["He will play the violin."]))
    index.store.save()  # and then the power failed
    with Index.open(index.folder, model) as opened:
        assert len(opened.search("He will play the violin.", k=20)) == 6


def test_uses_of_a_word_are_found_by_their_context(uses, model):
    hits = uses.search_word("play", "He will play the violin.", k=2)
    assert [hit.found.word for hit in hits] == ["play", "play"]
    assert hits[0].found.text == "He will play the violin."
    assert hits[0].found.place == 2
    others = uses.search_word("Play", "We play.", k=50, any_word=True)
    words = [hit.found.word for hit in others]
    assert "rained" in words
    assert "$" not in words
    assert len(words) == len(uses.store)


def test_a_deleted_sentence_takes_its_words_along(uses):
    first = uses.search_word("play", "He will play the violin.", k=1)[0].found
    uses.delete([first.id])
    assert len(uses.search_word("play", "He will play the violin.")) == 2
    with pytest.raises(InputError, match="no use of 'violin' is in the index"):
        uses.search_word("violin", "A violin.")


def test_questions_that_cannot_be_answered_are_refused(index, uses):
    with pytest.raises(InputError, match="has no word"):
        index.search(" \t")
    with pytest.raises(InputError, match="an index of words; say which word"):
        uses.search("play")
    with pytest.raises(InputError, match="an index of sentences; uses of words need one of words"):
        index.search_word("play", "We play.")
    with pytest.raises(InputError, match="'plays' is not a word of the sentence, whose words are"):
        uses.search_word("plays", "We play.")


def test_another_model_is_refused(index, tmp_path):
    (tmp_path / "other").mkdir()
    other = elmokit.load(make_folder(tmp_path / "other", size=1.1))
    with pytest.raises(InputError, match="index: built with another model") as refused:
        Index.open(index.folder, other)
    assert "\n" not in str(refused.value)


def test_a_carried_state_is_refused(text, tmp_path, model_folder):
    carrying = elmokit.load(model_folder, state="carry")
    with pytest.raises(InputError, match="depend on their text alone"):
        build_index(carrying, [str(text)], tmp_path / "i")


def test_a_corpus_without_words_leaves_nothing(model, tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(InputError, match=r"empty.txt: no word there"):
        build_index(model, [str(tmp_path / "empty.txt")], tmp_path / "i")
    assert not (tmp_path / "i").exists()


def test_layers_that_are_not_there_are_refused_before_anything_is_made(model, text, tmp_path):
    with pytest.raises(InputError, match="layer 7 was asked for"):
        build_index(model, [str(text)], tmp_path / "i", layers=7)
    assert not (tmp_path / "i").exists()


def test_what_stands_there_is_not_overwritten(index, model, text, tmp_path):
    with pytest.raises(OutputError, match="an index already"):
        build_index(model, [str(text)], index.folder)
    with pytest.raises(OutputError, match="not empty"):
        build_index(model, [str(text)], tmp_path)
    with pytest.raises(InputError, match="no index there; make one first"):
        Index.open(tmp_path, model)


def test_two_processes_do_not_change_one_index(index, text):
    with (
        Claim(index.folder, "taken"),
        pytest.raises(InputError, match="another process changes this index"),
    ):
        index.delete([1])


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("index.json", b"{}", "expected what elmo index build writes"),
        ("vectors.faiss", b"IxSQ", "FAISS cannot read it"),
        ("whitening.npy", b"", "not an array"),
        ("passages.sqlite", b"no database, " * 400, "SQLite cannot use it"),
    ],
)
def test_a_damaged_index_is_named(index, model, name, damage, message):
    index.close()
    (index.folder / name).write_bytes(damage)
    with pytest.raises(FormatError, match=message):
        Index.open(index.folder, model)


def test_files_that_do_not_belong_together_are_refused(index, model, tmp_path):
    rows = sqlite3.connect(index.folder / "passages.sqlite")
    rows.execute("INSERT INTO vectors VALUES (99, 1, NULL, NULL, NULL)")
    rows.commit()
    rows.close()
    with pytest.raises(FormatError, match=r"knows 100 vectors, but vectors.faiss has 6"):
        Index.open(index.folder, model)
    np.save(index.folder / "whitening.npy", np.ones((4, 3), np.float32))
    with pytest.raises(FormatError, match=r"vectors of \[3, 12\] numbers"):
        Index.open(index.folder, model)


def test_a_text_that_changed_under_a_build_is_refused(model, tmp_path):
    text, times = tmp_path / "text.txt", (1_000_000_000, 1_000_000_000)
    text.write_bytes(b"One good line is here.\n" * 9 + b"\xff\n")
    os.utime(text, times)
    model.tokens_per_batch = 1
    with pytest.raises(InputError, match="line 10: not UTF-8"):
        build_index(model, [str(text)], tmp_path / "i")
    text.write_bytes(b"One new! line is here.\n" * 9 + b"x\n")
    os.utime(text, times)  # the same size, the same age
    with pytest.raises(InputError, match=r"passage [0-9]+ is not what it was"):
        build_index(model, [str(text)], tmp_path / "i")
    text.write_bytes(b"One good line is here.\n" * 9 + b"x\n")
    os.utime(text, times)
    with build_index(model, [str(text)], tmp_path / "i") as index:
        assert len(index) == 10


BUILD = """
import sys, torch, elmokit
from elmokit.explore.build import build_index
torch.set_num_threads(1)
model = elmokit.load(sys.argv[1], split="spaces", tokens_per_batch=16)
build_index(model, [sys.argv[2]], sys.argv[3])
"""


def test_a_killed_build_goes_on_and_ends_with_the_same_numbers(model_folder, tmp_path):
    text, target = tmp_path / "text.txt", tmp_path / "killed"
    text.write_text("".join(f"line {n} of a text with {n % 7} more\n" for n in range(300)))
    child = subprocess.Popen([sys.executable, "-c", BUILD, model_folder, text, target])
    deadline = time.monotonic() + 60
    while len([*target.glob("parts/[0-9]*.npy")]) < 3 and time.monotonic() < deadline:
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    kept = {path: path.stat().st_mtime_ns for path in sorted(target.glob("parts/[0-9]*.npy"))[:-1]}
    assert len(kept) >= 2
    model = elmokit.load(model_folder, split="spaces", tokens_per_batch=16)
    with pytest.raises(InputError, match="its build did not end: start it again"):
        Index.open(target, model)
    with pytest.raises(InputError, match="begun with other files, options or another model"):
        build_index(model, [str(text)], target, pooling="max")
    assert all(path.stat().st_mtime_ns == changed for path, changed in kept.items())
    whole = build_index(model, [str(text)], tmp_path / "whole")
    resumed = build_index(model, [str(text)], target)
    with whole, resumed:
        assert len(resumed) == len(whole) == 300
        assert resumed.search("line 9 of it", k=50) == whole.search("line 9 of it", k=50)
    for name in ("vectors.faiss", "whitening.npy", "index.json"):
        assert (target / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not [*target.glob("parts*"), *target.glob("building.json")]
