"""Words that question and context share are marked, so that the head need not learn it."""

from elmokit.tasks.datasets.example_records import Answer, Question
from elmokit.tasks.heads.qa import mark_shared_words
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import tiny_settings


def test_words_of_both_texts_are_marked_in_each():
    question_marks, context_marks = mark_shared_words(
        [(("Who", "painted", "it", "?"), ("A", "painter", "painted", "it"))]
    )
    assert question_marks.tolist() == [[[0, 0], [1, 1], [1, 1], [0, 0]]]
    assert context_marks.tolist() == [
        [[0, 0], [0, 1], [1, 1], [1, 1]]
    ]  # "painter" has the same stem only


def test_case_does_not_count_and_padding_is_not_marked():
    question_marks, context_marks = mark_shared_words(
        [(("OSLO",), ("Oslo", "lies")), (("Why", "not"), ("no",))]
    )
    assert question_marks.tolist() == [[[1, 1], [0, 0]], [[0, 0], [0, 0]]]
    assert context_marks.tolist() == [[[1, 1], [0, 0]], [[0, 0], [0, 0]]]


def test_words_that_training_did_not_have_are_found(tmp_path):
    """To a head without characters they are all unknown: only the mark tells them apart."""
    settings = tiny_settings(elmo="none", character_filters=0, dropout=0.0, epochs=20)
    examples, dev = ([question(n) for n in numbers] for numbers in (range(40), range(100, 110)))
    trained = train_task(TASKS["qa"], examples, dev, tmp_path, settings=settings)
    assert trained.scores["exact"] > 0.9


def question(number):
    words = tuple(f"{letter}{number}" for letter in "abcd")
    correct = number % 4
    length = len(words[0])
    offsets = tuple((first, first + length) for first in range(0, 4 * (length + 1), length + 1))
    answer = Answer(words[correct], correct, correct, False)
    return Question(
        str(number), ("where", words[correct]), words, offsets, " ".join(words), (answer,)
    )
