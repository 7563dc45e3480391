"""Plain lines become examples, and answers plain lines."""

import pytest

from elmokit.errors import InputError
from elmokit.tasks import plain
from elmokit.tasks.catalog import TASKS
from elmokit.tokenizers import get_tokenizer, split_on_whitespace


def test_roles_are_shown_in_brackets_around_a_predicate_between_stars():
    example = plain.ROLES.ask("She *gave* him a book", split_on_whitespace)
    assert (example.words, example.predicate) == (("She", "gave", "him", "a", "book"), 1)
    tags = ("B-ARG0", "B-V", "O", "B-ARG1", "I-ARG1")
    assert plain.ROLES.show(example, tags) == "[ARG0 She] [V gave] him [ARG1 a book]\n"
    for line in ("She gave", "*She* *gave*", "* * *", "5*3*2 is", "**eat** it"):
        with pytest.raises(InputError, match="words between stars, expected one"):
            plain.ROLES.ask(line, split_on_whitespace)
    example = plain.ROLES.ask("She didn't *give* it.", plain.words_by("moses"))
    assert (example.words, example.predicate) == (("She", "didn", "'t", "give", "it", "."), 3)
    assert plain.ROLES.ask("a *** b", split_on_whitespace).words == ("a", "*", "b")
    example = plain.ROLES.ask("他*给*她一本书", get_tokenizer("characters").words)
    assert (example.words, example.predicate) == ((*"他给她一本书",), 1)


RAW = "It rained. We didn't leave"


@pytest.mark.parametrize(
    ("task", "held", "asked"),
    [
        ("texts", f"1\t{RAW}\n", RAW),
        ("texts", f"1\t{RAW}<br />No.\n", f"{RAW}<br />No."),
        ("entailment", f"{RAW}\t{RAW}\t1\n", f"{RAW}\t{RAW}"),
        ("pos", "It\tA\nrained.\tB\n", "It rained."),
        ("sentiment", "(3 (2 It) (4 rained.))\n", "It rained."),
    ],
)
def test_what_is_asked_is_split_as_what_was_learnt(task, held, asked, tmp_path):
    (tmp_path / "file").write_text(held)
    (learnt,) = TASKS[task].read(tmp_path / "file")
    way = TASKS[task].plain
    example = way.ask(asked, plain.words_by(way.split))
    assert TASKS[task].sentences(example) == TASKS[task].sentences(learnt)


def test_questions_find_their_words_in_the_text():
    line = "Who left?\tAda didn't; Charles left."
    example = plain.QUESTION.ask(line, get_tokenizer("moses").tokenize)
    found = [example.text[first:last] for first, last in example.offsets]
    assert found == ["Ada", "didn", "'t", ";", "Charles", "left", "."]
    assert plain.QUESTION.show(example, "Charles") == "Charles\n"


def test_documents_are_split_and_groups_shown_by_their_words():
    example = plain.DOCUMENT.ask("Ada met Bob. She waved.", get_tokenizer("moses").tokenize)
    assert example.sentences == (("Ada", "met", "Bob", "."), ("She", "waved", "."))
    assert plain.DOCUMENT.show(example, (((0, 0), (4, 4)),)) == "Ada | She\n\n"
    assert plain.DOCUMENT.show(example, ()) == "\n"  # documents stay apart


@pytest.mark.parametrize("way", [plain.SENTENCE, plain.TEXT])
def test_a_label_before_a_text_is_not_taken_for_text(way):
    with pytest.raises(InputError, match="'pos' and a tab, expected a text without its label"):
        way.ask("pos\ta good film", split_on_whitespace)
    assert way.ask("a good\tfilm\t", split_on_whitespace).words == ("a", "good", "film")


@pytest.mark.parametrize("way", [plain.TAGS, plain.TEXT, plain.DOCUMENT])
def test_a_line_without_words_is_refused(way):
    with pytest.raises(InputError, match="no words"):
        way.ask("  ", split_on_whitespace)
