"""Every task reads its files and text, scores predictions as usual, and writes them as text."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from elmokit.errors import FormatError, InputError
from elmokit.tasks.datasets.example_records import Document, PredicateRoles, TaggedSentence
from elmokit.tasks.task_registry import TASKS, words_by
from elmokit.tokenizers import get_tokenizer, split_on_whitespace


def test_the_predicate_does_not_count_in_srl():
    gold = PredicateRoles(("He", "gave", "it", "up"), 1, "", ("B-ARG0", "B-V", "B-ARG1", "B-C-V"))
    scores = TASKS["srl"].score([gold], [("B-ARG0", "O", "O", "O")])
    assert scores == {"f1": pytest.approx(2 / 3), "precision": 1, "recall": 0.5}


def test_every_label_counts_in_ner():
    gold = TaggedSentence(("Mach", "V"), ("O", "S-V"))
    assert TASKS["ner"].score([gold], [("O", "S-V")])["f1"] == 1
    assert TASKS["ner"].score([gold], [("O", "O")])["f1"] == 0


def test_clusters_of_one_mention_do_not_count():
    clusters = (((0, 0), (2, 2)),)
    document = Document("", 0, (("Ada", "saw", "herself", "there"),), clusters)
    with_singleton = replace(document, clusters=(*clusters, ((3, 3),)))
    assert TASKS["coreference"].score([with_singleton], [clusters])["f1"] == 1


@pytest.mark.parametrize("task", ["ner", "chunking"])
def test_a_tag_of_no_scheme_is_refused_with_its_line(task, tmp_path):
    file = tmp_path / "names.conll"
    file.write_text("Ada B-PER\n\nleft VBD\n")
    with pytest.raises(FormatError, match=r"names.conll, line 3: tag 'VBD', expected O or one"):
        TASKS[task].read(file)


@pytest.mark.parametrize("comment", ["", "# text = Ada left\n"])
def test_conllu_is_recognized_by_its_content(comment, tmp_path):
    file = tmp_path / "words.txt"
    rest = "\t_" * 6
    file.write_text(f"{comment}1\tAda\t_\tPROPN{rest}\n2\tleft\t_\tVERB{rest}\n")
    assert TASKS["pos"].read(file) == [TaggedSentence(("Ada", "left"), ("PROPN", "VERB"))]
    file.write_text("Ada NNP\nleft VBD\n")
    assert TASKS["pos"].read(file) == [TaggedSentence(("Ada", "left"), ("NNP", "VBD"))]


@pytest.mark.parametrize("task", TASKS)
def test_an_empty_file_is_refused_with_its_name(task, tmp_path):
    file = tmp_path / "nothing.txt"
    file.write_text("")
    with pytest.raises(FormatError, match=r"nothing\.txt"):
        TASKS[task].read(file)


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("ner", "\n \n-DOCSTART- O\n"),
        ("pos", "# newdoc\n\n1-2\tdon't" + "\t_" * 8 + "\n"),
        ("srl", "0\tHello\tUH\t-\t-\n"),
        ("sentiment", "\n"),
        ("entailment", "a man\ta cat\t-\n"),
        ("qa", '{"data": []}'),
        ("coreference", "# no document\n"),
    ],
)
def test_a_file_without_an_example_is_refused(task, text, tmp_path):
    file = tmp_path / "file.txt"
    file.write_text(text)
    expected = re.escape(f"file.txt: holds no example, expected {TASKS[task].files}; is it the")
    with pytest.raises(FormatError, match=expected):
        TASKS[task].read(file)


@pytest.mark.full
@pytest.mark.parametrize("module", ["heads.tagger", "heads.srl", "task_registry"])
def test_all_tasks_are_registered_whichever_module_is_imported_first(module):
    code = f"import elmokit.tasks.{module}, elmokit.tasks.task_registry as r; print(*r.TASKS)"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.split() == [*TASKS] == sorted(TASKS)


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
