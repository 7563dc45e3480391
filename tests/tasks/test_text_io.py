"""Text, word lists, pairs and mappings become examples, and predictions become text."""

import pytest

from elmokit.errors import InputError
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.text_io import words_by
from elmokit.tokenizers import get_tokenizer, split_on_whitespace

RAW = "It rained. We didn't leave"


def parse(task, value, tokenizer="moses"):
    return TASKS[task].text.parse(value, words_by(tokenizer))


def test_srl_marks_the_predicate_with_stars_and_brackets_the_roles():
    example = parse("srl", "She *gave* him a book", "spaces")
    assert (example.words, example.predicate) == (("She", "gave", "him", "a", "book"), 1)
    tags = ("B-ARG0", "B-V", "O", "B-ARG1", "I-ARG1")
    assert TASKS["srl"].text.format(example, tags) == "[ARG0 She] [V gave] him [ARG1 a book]\n"
    for line in ("She gave", "*She* *gave*", "* * *", "5*3*2 is", "**eat** it"):
        with pytest.raises(InputError, match="words between stars, expected one"):
            parse("srl", line, "spaces")
    example = parse("srl", "She didn't *give* it.")
    assert (example.words, example.predicate) == (("She", "didn", "'t", "give", "it", "."), 3)
    assert parse("srl", "a *** b", "spaces").words == ("a", "*", "b")
    example = parse("srl", "他*给*她一本书", "characters")
    assert (example.words, example.predicate) == ((*"他给她一本书",), 1)


def test_srl_takes_words_with_the_position_of_the_predicate():
    words = ["She", "gave", "up"]
    marked = parse("srl", "She *gave* up", "spaces")
    assert parse("srl", {"words": words, "predicate": 1}) == marked
    for wrong in (3, -1, "1", None):
        with pytest.raises(InputError, match=r"predicate is .*, expected 0 to 2"):
            parse("srl", {"words": words, "predicate": wrong})
    with pytest.raises(InputError, match="stars around the predicate, or"):
        parse("srl", words)


@pytest.mark.parametrize(
    ("task", "line_of_file", "line"),
    [
        ("classification", f"1\t{RAW}\n", RAW),
        ("classification", f"1\t{RAW}<br />No.\n", f"{RAW}<br />No."),
        ("entailment", f"{RAW}\t{RAW}\t1\n", f"{RAW}\t{RAW}"),
    ],
)
def test_raw_text_is_tokenized_as_in_training_files(task, line_of_file, line, tmp_path):
    (tmp_path / "file").write_text(line_of_file)
    (from_file,) = TASKS[task].read(tmp_path / "file")
    example = parse(task, line, TASKS[task].tokenizer)
    assert TASKS[task].sentences(example) == TASKS[task].sentences(from_file)


def test_a_question_has_the_offsets_of_its_words():
    line = "Who left?\tAda didn't; Charles left."
    example = TASKS["qa"].text.parse(line, get_tokenizer("moses").tokenize)
    words = [example.text[start:end] for start, end in example.offsets]
    assert words == ["Ada", "didn", "'t", ";", "Charles", "left", "."]
    assert TASKS["qa"].text.format(example, "Charles") == "Charles\n"


def test_pairs_can_be_lines_tuples_or_mappings():
    expected = parse("qa", "Who?\tAda left.")
    assert parse("qa", ("Who?", "Ada left.")) == expected
    assert parse("qa", {"question": "Who?", "context": "Ada left."}) == expected
    assert parse("qa", (["Who", "?"], ["Ada", "left", "."])).context == expected.context
    expected = parse("entailment", "It rains.\tIt is dry.")
    assert parse("entailment", {"premise": "It rains.", "hypothesis": "It is dry."}) == expected
    for wrong in ("no tab", "a\tb\tc", ("a",), {"question": "Who?"}, 3):
        with pytest.raises(InputError, match=r"tabs, expected a|expected a pair \(question, cont"):
            parse("qa", wrong)


def test_a_document_is_split_into_sentences_and_clusters_are_shown_by_their_words():
    text = TASKS["coreference"].text
    example = text.parse("Ada met Bob. She waved.", get_tokenizer("moses").tokenize)
    assert example.sentences == (("Ada", "met", "Bob", "."), ("She", "waved", "."))
    assert text.format(example, (((0, 0), (4, 4)),)) == "Ada | She\n\n"
    assert text.format(example, ()) == "\n"  # documents stay apart
    sentences = [["Ada", "met", "Bob", "."], ["She", "waved", "."]]
    assert parse("coreference", sentences) == example


@pytest.mark.parametrize("task", ["sentiment", "classification"])
def test_a_label_before_a_text_is_not_taken_for_text(task):
    with pytest.raises(InputError, match="'pos' and a tab, expected a text without its label"):
        parse(task, "pos\ta good film", "spaces")
    assert parse(task, "a good\tfilm\t", "spaces").words == ("a", "good", "film")


@pytest.mark.parametrize("task", ["ner", "classification", "coreference"])
def test_a_text_without_words_is_refused(task):
    with pytest.raises(InputError, match="no words"):
        TASKS[task].text.parse("  ", split_on_whitespace)


@pytest.mark.parametrize("value", [None, 3, [], ["a", None], ["a", ""], [["a"]]])
def test_values_that_are_not_text_are_refused(value):
    with pytest.raises(InputError, match="expected a string or a list of words"):
        parse("ner", value)
