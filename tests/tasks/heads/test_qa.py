"""What a question and its text share is marked, so that no example has to teach it."""

from elmokit.tasks.datasets.example_records import Answer, Question
from elmokit.tasks.heads.qa import mark_shared_words
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import changed


def test_words_of_both_texts_are_marked_in_each():
    asked, said = mark_shared_words(
        [(("Who", "painted", "it", "?"), ("A", "painter", "painted", "it"))]
    )
    assert asked.tolist() == [[[0, 0], [1, 1], [1, 1], [0, 0]]]
    assert said.tolist() == [[[0, 0], [0, 1], [1, 1], [1, 1]]]  # "painter" only begins like it


def test_case_does_not_count_and_padding_is_not_marked():
    asked, said = mark_shared_words([(("OSLO",), ("Oslo", "lies")), (("Why", "not"), ("no",))])
    assert asked.tolist() == [[[1, 1], [0, 0]], [[0, 0], [0, 0]]]
    assert said.tolist() == [[[1, 1], [0, 0]], [[0, 0], [0, 0]]]


def test_a_question_finds_words_that_no_example_had(tmp_path):
    """To a head without characters they are all unknown: only the mark tells which is asked for."""
    settings = changed(elmo="none", character_filters=0, dropout=0.0, epochs=20)
    examples, new = ([asked(number) for number in some] for some in (range(40), range(100, 110)))
    trained = train_task(TASKS["qa"], examples, new, tmp_path, settings=settings)
    assert trained.scores["exact"] > 0.9


def asked(number):
    words = tuple(f"{letter}{number}" for letter in "abcd")
    right = number % 4
    long = len(words[0])
    offsets = tuple((first, first + long) for first in range(0, 4 * (long + 1), long + 1))
    question, answer = ("where", words[right]), Answer(words[right], right, right, False)
    return Question(str(number), question, words, offsets, " ".join(words), (answer,))
