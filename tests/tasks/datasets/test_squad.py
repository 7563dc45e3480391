import json
import logging

import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.example_records import Answer
from elmokit.tasks.datasets.squad import read_squad
from elmokit.tokenizers import get_tokenizer

CONTEXT = "The “Super Bowl” of 2016–17 was in Santa-Clara."


def squad(*answers, context=CONTEXT, id="q1", question="Where was it?"):
    answers = [{"text": text, "answer_start": start} for text, start in answers]
    question = {"id": id, "question": question, "answers": answers}
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [question]}]}]})


def test_answers_are_words_of_the_context(write):
    path = write(squad(("Super Bowl", 5), ("Santa", 35)))
    question = read_squad(path, get_tokenizer("moses").tokenize)[0]
    assert question.question == ("Where", "was", "it", "?")
    assert [CONTEXT[start:end] for start, end in question.offsets[:5]] == [
        "The", "“", "Super", "Bowl", "”",
    ]  # fmt: skip
    assert question.text == CONTEXT
    bowl, santa = question.answers
    assert bowl == Answer("Super Bowl", 2, 3, widened=False)
    assert question.context[santa.first : santa.last + 1] == ("Santa-Clara",)
    assert santa.widened


def test_spaces_around_an_answer_do_not_widen_it(write):
    question = read_squad(write(squad((" of ", 16))), get_tokenizer("moses").tokenize)[0]
    assert question.answers[0].widened is False


def test_a_duplicate_question_is_refused(write):
    content = json.loads(squad(("Super", 5)))
    with pytest.raises(FormatError, match="question q1 is there twice"):
        read_squad(write(json.dumps({"data": content["data"] * 2})), str.split)


def test_the_log_says_how_many_were_widened(write, caplog):
    with caplog.at_level(logging.INFO):
        read_squad(write(squad(("Super Bowl", 5), ("Santa", 35))), get_tokenizer("moses").tokenize)
    assert "1 of 2 answers widened" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: not JSON"),
        ('{"data": ' + "1" * 5000 + "}", "not JSON"),
        ('{"data":\n[', "line 2: not JSON"),
        ("[]", "the file has no 'data' that is a list"),
        ('{"data": [{}]}', "article 1 has no 'paragraphs'"),
        (squad(), "question q1 has no answer, expected one or more as in SQuAD 1.1"),
        (squad(("\ud83d", 0), context="\ud83d."), "'context' has half of a surrogate pair"),
        (squad(("Bowl", 5)), "question q1: character 5 of the context begins 'Supe', expected"),
        (squad(("Bowl", -1)), "question q1: character -1"),
        (squad((" ", 3)), "question q1: the answer ' ' holds no word"),
        (squad(("Super", 5), question=" "), "question q1 has no word"),
        (squad(("Super", "5")), "question q1: an answer has no 'answer_start' that is a whole"),
        (squad(("", 0), context=" "), "article 1, paragraph 1: the words of the context cannot"),
    ],
)
def test_malformed_squad_is_refused(text, message, write):
    with pytest.raises(FormatError, match=message):
        read_squad(write(text), str.split)


@pytest.mark.parametrize(("part", "questions"), [("train", 8_443), ("dev", 814)])
def test_the_published_files_are_read_completely(part, questions, labelled):
    tokenize = get_tokenizer("moses").tokenize if part == "dev" else str.split
    read = read_squad(labelled / f"qa_squad/{part}.json.xz", tokenize)
    assert len(read) == questions
    for question in read[::20]:
        for answer in question.answers:
            start, end = question.offsets[answer.first][0], question.offsets[answer.last][1]
            covered = question.text[start:end]
            assert covered == answer.text or (answer.widened and answer.text.strip() in covered)
