"""An index is built, searched and changed, in a folder and in a database alike."""

import json
import os

import numpy as np
import pytest

import elmokit
from elmokit.errors import InputError, OutputError
from elmokit.search import Index, read_index_info
from random_models import make_folder

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
def index(model, text, location):
    with Index.build(location("index"), [str(text)], model) as built:
        yield built


@pytest.fixture
def word_index(model, text, location):
    with Index.build(location("words"), [str(text)], model, unit="words", layers="top") as built:
        yield built


def texts_of(hits):
    return [hit.passage.text for hit in hits]


def test_a_passage_is_nearest_to_itself(index):
    hits = index.search("The children play in the street.", k=3, mode="semantic")
    assert len(hits) == 3
    assert hits[0].score == pytest.approx(1, abs=2e-3)
    passage = hits[0].passage
    assert (passage.line, passage.start, passage.end) == (2, 0, len(LINES[1]))
    names = ["score", "cosine", "bm25", "word_match", "id", "file"]
    assert [*json.loads(json.dumps(hits[0].to_dict()))][:6] == names


@pytest.mark.parametrize("layers", ["mean", "top", "concat", 0])
@pytest.mark.parametrize("way", ["zca", "none"])
def test_search_agrees_with_brute_force_over_encode(model, text, location, layers, way):
    with Index.build(
        location("i"), [str(text)], model, unit="paragraphs", vector_per="passage", layers=layers,
        whitening=way,
    ) as index:  # fmt: skip
        vectors = model.encode([*LINES, "a violin"], layers=layers)
        if way == "none":
            changed = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        else:
            changed = index.whitening.transform(vectors)
        cosines = changed[:-1] @ changed[-1]
        hits = index.search("a violin", k=10, mode="semantic")
        assert [hit.passage.line - 1 for hit in hits] == np.argsort(-cosines).tolist()
        np.testing.assert_allclose([hit.score for hit in hits], -np.sort(-cosines), atol=5e-3)


def test_an_opened_index_gives_the_same_hits(index, model, location):
    before = index.search("a late violin")
    with Index.open(location("index"), model) as opened:
        assert opened.search("a late violin") == before
        assert len(opened) == 6
        assert opened.config == index.config


def test_files_are_added_and_passages_deleted(index, model, location, tmp_path):
    new = tmp_path / "new.txt"
    new.write_text("Quite another thing! The end.\n")
    assert index.add([str(new)]) == 2
    with pytest.raises(InputError, match=r"new.txt: in the index already; delete it first"):
        index.add([str(new)])
    hit = index.search("Quite another thing!", k=1)[0]
    assert hit.passage.text == "Quite another thing!"
    index.delete([hit.passage.id])
    with Index.open(location("index"), model) as opened:
        for each in (index, opened):
            assert "Quite another thing!" not in texts_of(each.search("Quite another thing!"))
            assert len(each) == 7
        with pytest.raises(InputError, match=f"no passage has the id {hit.passage.id}"):
            opened.delete([1, hit.passage.id])
        opened.delete(opened.passages_of(str(new)))
        assert len(opened) == 6
        with pytest.raises(InputError, match="no passage of"):
            opened.passages_of(str(new))
        assert opened.add([str(new)]) == 2  # as if it had never been there
        assert texts_of(opened.search("The end.", k=1)) == ["The end."]


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_every_kind_of_index_is_opened_changed_and_opened_again(
    model, text, location, tmp_path, kind
):
    Index.build(location("i"), [str(text)], model, kind=kind).close()
    (tmp_path / "new.txt").write_text("Quite another thing!\n")
    with Index.open(location("i"), model) as index:
        index.add([str(tmp_path / "new.txt")])
        index.delete([1])
    with Index.open(location("i"), model) as index:
        assert index.config.kind == kind
        assert texts_of(index.search("Quite another thing!", k=1)) == ["Quite another thing!"]
        assert "He will play the violin." not in texts_of(index.search(LINES[0], k=20))


def test_a_failed_add_leaves_the_index_unchanged(index, model, location, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"A good line that is far away from the bad one.\n" * 3 + b"\xff\n")
    model.tokens_per_batch = 1  # the good lines are added before the bad one is met
    before = index.search("a bad line", k=20)
    with pytest.raises(InputError, match="line 4: not UTF-8"):
        index.add([str(bad)])
    assert index.search("a bad line", k=20) == before
    bad.write_bytes(b"A good line.\n")
    index.add([str(bad)])
    with Index.open(location("index"), model) as opened:
        assert texts_of(opened.search("A good line.", k=1)) == ["A good line."]
        assert len(opened.search("A good line.", k=50)) == 7


def test_occurrences_of_a_word_are_found_by_their_context(word_index, model):
    hits = word_index.search_word("play", "He will play the violin.", k=2)
    assert [hit.passage.word for hit in hits] == ["play", "play"]
    assert hits[0].passage.text == "He will play the violin."
    assert hits[0].passage.word_index == 2
    others = word_index.search_word("Play", "We play.", k=50, any_word=True)
    words = [hit.passage.word for hit in others]
    assert "rained" in words
    assert "$" not in words
    assert len(words) == word_index.store.counts().vectors


def test_deleting_a_sentence_deletes_its_words(word_index):
    first = word_index.search_word("play", "He will play the violin.", k=1)[0].passage
    word_index.delete([first.id])
    assert len(word_index.search_word("play", "He will play the violin.")) == 2
    with pytest.raises(InputError, match="'violin' does not occur in the index"):
        word_index.search_word("violin", "A violin.")


def test_queries_that_do_not_fit_the_index_are_refused(index, word_index):
    with pytest.raises(InputError, match="has no word"):
        index.search(" \t")
    with pytest.raises(InputError, match="an index of words; give a word"):
        word_index.search("play")
    with pytest.raises(
        InputError, match="an index of sentences; searching for a word needs one of words"
    ):
        index.search_word("play", "We play.")
    with pytest.raises(InputError, match="'plays' is not a word of the sentence, whose words are"):
        word_index.search_word("plays", "We play.")


def test_another_model_is_refused(index, location, tmp_path):
    (tmp_path / "other").mkdir()
    other = elmokit.load(make_folder(tmp_path / "other", size=1.1))
    with pytest.raises(InputError, match="index: built with another model") as refused:
        Index.open(location("index"), other)
    assert "\n" not in str(refused.value)


def test_a_carried_state_is_refused(text, location, model_folder):
    carrying = elmokit.load(model_folder, state="carry")
    with pytest.raises(InputError, match="vectors depend on the text before"):
        Index.build(location("i"), [str(text)], carrying)


def test_a_build_without_words_leaves_nothing(model, location, tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(InputError, match=r"empty.txt: no words found"):
        Index.build(location("i"), [str(tmp_path / "empty.txt")], model)
    with pytest.raises(InputError, match="no index there; build one first"):
        Index.open(location("i"), model)


def test_unknown_layers_are_refused_before_anything_is_made(model, text, location):
    with pytest.raises(InputError, match="layer 7 was asked for"):
        Index.build(location("i"), [str(text)], model, layers=7)
    with pytest.raises(InputError, match="no index there; build one first"):
        Index.open(location("i"), model)


def test_an_index_is_not_overwritten(index, model, text, location):
    with pytest.raises(OutputError, match="an index already; add to it, or"):
        Index.build(location("index"), [str(text)], model)
    assert len(index) == 6


def test_only_one_process_changes_an_index_at_a_time(index, model, location):
    with Index.open(location("index"), model) as other:
        with (
            other.store.changing(),
            pytest.raises(
                InputError,
                match=r"another process is (writing it|changing this index); wait until it",
            ),
        ):
            index.delete([1])
        index.delete([1])
        assert len(other) == len(index) == 5
        assert len(other.search("She was late.", k=20)) == 5
        with pytest.raises(InputError, match="no passage has the id 1"):
            other.delete([1])


@pytest.mark.parametrize("id_", [0, -1, 7, 2**63, 10**30])
def test_an_id_that_no_passage_has_is_refused(index, id_):
    with pytest.raises(InputError, match=f"no passage has the id {id_}"):
        index.delete([1, id_])
    assert len(index) == 6


HOSTILE = [
    """It's "quoted" 'twice'; DROP TABLE passages; --""",
    r"back\slash \\x00 \N \. %s %(k)s {s} $1 ''",
    "a character \0 that is zero",
    "北京 银行 🙂 العربية e\u0301",
    "long " + "x" * 9000,
    "many words " * 3000,
]


@pytest.mark.full
@pytest.mark.parametrize("unit", ["paragraphs", "words"])
def test_any_text_is_stored_unchanged(model, location, tmp_path, unit):
    path = tmp_path / "it's a “file” %s.txt"
    path.write_bytes("".join(f"{line}\n" for line in HOSTILE[:3]).encode())
    new = tmp_path / "北京.txt"
    new.write_bytes("".join(f"{line}\n" for line in HOSTILE[3:]).encode())
    with Index.build(location("hostile"), [str(path)], model, unit=unit) as index:
        index.add([str(new)])
        with index.store.changing():
            pass  # nothing was changed
        for number, line in enumerate(HOSTILE):
            line = line.strip()  # noqa: PLW2901
            word = next(w for w in model.tokenize(line)[0] if any(map(str.isalnum, w)))
            hits = (
                index.search_word(word, line, k=3) if unit == "words" else index.search(line, k=1)
            )
            if unit == "paragraphs":
                assert hits[0].passage.text == line
                assert hits[0].passage.line == number % 3 + 1
            assert {hit.passage.file for hit in hits} <= {str(path), str(new)}
        index.delete(index.passages_of(str(path)))
        assert len(index) > 0


def test_a_text_that_changed_during_a_build_is_refused(model, location, tmp_path):
    text, times = tmp_path / "text.txt", (1_000_000_000, 1_000_000_000)
    text.write_bytes(b"One good line is here.\n" * 9 + b"\xff\n")
    os.utime(text, times)
    model.tokens_per_batch = 1
    with pytest.raises(InputError, match="line 10: not UTF-8"):
        Index.build(location("i"), [str(text)], model)
    text.write_bytes(b"One new! line is here.\n" * 9 + b"x\n")
    os.utime(text, times)  # the same size, the same age
    with pytest.raises(InputError, match=r"passage [0-9]+ of the text differs"):
        Index.build(location("i"), [str(text)], model)
    text.write_bytes(b"One good line is here.\n" * 9 + b"x\n")
    os.utime(text, times)
    with Index.build(location("i"), [str(text)], model) as index:
        assert len(index) == 10


def test_the_info_of_an_index_needs_no_model(index, word_index, model, text, location):
    info = read_index_info(location("index"))
    assert (info.name, info.config, info.dim) == (index.name, index.config, model.dim)
    assert (info.passages, info.vectors, info.files) == (6, 6, 1)
    assert info.size_bytes > 6 * 2 * model.dim
    words = read_index_info(location("words"))
    assert words.config.unit == "words"
    assert words.vectors > words.passages == 6
    with pytest.raises(InputError, match="no index there; build one first"):
        read_index_info(location("none"))


def test_an_index_has_a_repr(index):
    assert repr(index) == f"Index({index.name!r}, 6 passages, unit='sentences')"
