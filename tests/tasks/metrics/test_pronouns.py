"""GAP's pronouns are judged by the groups that a head finds in their texts."""

import pytest

from elmokit.errors import InputError
from elmokit.tasks.data.example import Pronoun
from elmokit.tasks.metrics.pronouns import score_pronouns

SENTENCES = (("Dr", "Ann", "Lee", "met", "Bo", "."), ("She", "left", "."))
SHE, ANN_LEE, BO = (6, 6), (1, 2), (4, 4)
ANN = Pronoun("1", SENTENCES, SHE, ANN_LEE, BO, True, False, "She")
HE = Pronoun("2", (SENTENCES[0], ("truth--he", "left", ".")), SHE, ANN_LEE, BO, False, True, "he")


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ([[SHE, ANN_LEE], [BO]], (1, 1)),
        ([[SHE, (0, 2)]], (1, 1)),  # with her title
        ([[SHE, (1, 1)]], (0, 0)),  # half of her name
        ([[SHE, (1, 4)]], (0, 0)),  # ends with another's
        ([[SHE, ANN_LEE, BO]], (0.5, 1)),
        ([[SHE, BO]], (0, 0)),
        ([[(5, 6), ANN_LEE]], (0, 0)),  # not the pronoun
        ([], (0, 0)),
    ],
)
def test_a_pronoun_stands_for_a_name_that_a_mention_of_its_group_ends_with(groups, told):
    score = score_pronouns([ANN], [groups]).feminine
    assert (score.precision, score.recall) == told


def test_women_and_men_are_counted_apart():
    found = score_pronouns([ANN, HE, HE], [[[SHE, ANN_LEE]], [[SHE, BO]], []]).by_name
    third = pytest.approx(2 / 3)
    assert found["feminine"] == 1
    assert found["masculine"] == third
    assert found["bias"] == pytest.approx(1.5)
    assert (found["precision"], found["recall"], found["f1"]) == (1, third, pytest.approx(0.8))
    assert "bias" not in score_pronouns([ANN], [[[SHE, ANN_LEE]]]).by_name  # there are no men
    assert "bias" not in score_pronouns([ANN, HE], [[[SHE, ANN_LEE]], []]).by_name


@pytest.mark.parametrize(
    ("text", "mention", "is_ann"),
    [
        ("Ann Lee 's cat slept .", (0, 2), True),
        ("The mother of Ann Lee slept .", (0, 4), False),
        ("Bo and Ann Lee slept .", (0, 3), False),
        ("Bo 's Ann Lee slept .", (0, 3), False),
        ("Professor Doctor Ann Lee slept .", (0, 3), True),
        ("His wife , the singer Ann Lee , slept .", (3, 6), True),
        ("Everyone but Ann Lee slept .", (0, 3), False),
        ("The man with Ann Lee slept .", (0, 4), False),
        ("The man who met Ann Lee slept .", (0, 5), False),
        ("Ann Lee 's cat slept .", (0, 3), False),
    ],
)
def test_only_what_she_is_may_stand_before_a_name(text, mention, is_ann):
    words = text.split()
    at = words.index("Ann")
    she = len(words), len(words)
    example = Pronoun("3", (tuple(words), ("She",)), she, (at, at + 1), she, True, False, "She")
    assert score_pronouns([example], [[[mention, she]]]).feminine.wanted_right == is_ann


def test_a_word_that_is_name_and_pronoun_at_once_does_not_answer_itself():
    glued = (2, 2)
    example = Pronoun("4", (("Bo", "left", "Ann--she"),), glued, glued, (0, 0), True, False, "she")
    score = score_pronouns([example], [[[glued, (0, 0)]]]).feminine
    assert (score.found, score.wanted_right) == (1, 0)


def test_every_pronoun_needs_an_answer():
    with pytest.raises(InputError):
        score_pronouns([ANN, HE], [[]])


def test_a_pronoun_is_in_one_group():
    with pytest.raises(InputError, match=r"mention \(6, 6\) is in two groups, expected one"):
        score_pronouns([ANN], [[[SHE, BO], [SHE, ANN_LEE]]])
