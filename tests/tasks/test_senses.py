"""A word's sense is that whose uses are nearest; the first one, where nothing is known."""

from inspect import signature

import pytest

from elmokit.cli.tasks import wsd
from elmokit.errors import FormatError, InputError
from elmokit.tasks.data.example import Instance, Sensed
from elmokit.tasks.senses import OFTEN, FirstSenses, SenseAverages, disambiguate, entry_of

MONEY, RIVER, LOAN = "bank%1:14:00::", "bank%1:17:01::", "loan%1:21:00::"


def sensed(words, place, *keys, pos="NN"):
    words = tuple(words.split())
    instance = Instance("x", place, place, words[place], pos, keys)
    return Sensed("s", words, (instance,))


USES = [
    sensed("money in the bank", 3, MONEY),
    sensed("cash in the bank", 3, MONEY),
    sensed("grass on a bank .", 3, RIVER),
    sensed("trees on a bank .", 3, RIVER),
    sensed("trees on a bank !", 3, RIVER),
]
INDEX = f"{RIVER} 09213565 1 25\n{MONEY} 08420278 2 20\n{LOAN} 13398953 1 9\n"


def test_the_nearest_sense_is_chosen_and_the_first_where_nothing_is_known(model, tmp_path):
    (tmp_path / "index.sense").write_text(INDEX)
    first = FirstSenses.of_wordnet(tmp_path / "index.sense")
    averages = SenseAverages(model)
    averages.learn(USES)
    found = disambiguate(averages, first, [*USES, sensed("a loan", 1, LOAN)], often=0)
    assert (found.instances, found.unknown) == (6, 1)
    assert found.first_sense == 4 / 6  # three rivers and the loan
    assert found.commonest == 4 / 6
    assert found.layers[0] == found.first_sense or found.layers[0] == 3 / 6  # one vector for all
    assert found.layers[1:] == [1.0, 1.0]
    assert averages.choose([sensed("a loan", 1, LOAN)]) == [[None] * 3]


def test_a_common_sense_is_nearer_the_more_that_counts(model):
    averages = SenseAverages(model)
    averages.learn(USES)
    asked = [sensed("money in the bank", 3, MONEY)]
    assert averages.choose(asked, often=0)[0][1:] == [MONEY, MONEY]
    assert averages.choose(asked, often=100.0) == [[RIVER] * 3]  # three uses against two
    assert signature(wsd).parameters["often"].default == OFTEN
    with pytest.raises(InputError, match="often is inf, expected a number of 0 or more"):
        averages.choose(asked, often=float("inf"))
    with pytest.raises(InputError, match=r"often is -1\.0, expected a number of 0 or more"):
        averages.choose(asked, often=-1.0)


def test_first_senses_are_those_of_wordnet(tmp_path):
    (tmp_path / "index.sense").write_text(INDEX)
    wordnet = FirstSenses.of_wordnet(tmp_path / "index.sense")
    assert wordnet.choose(USES[0].instances[0]) == RIVER
    assert wordnet.choose(sensed("bank", 0, MONEY, pos="VERB").instances[0]) is None
    with pytest.raises(InputError, match="wordnet-sense-index"):
        FirstSenses.of_wordnet(tmp_path / "none")
    for wrong in ("bank", "say%2:32:00:: 01009240 ² 400", f"say%2:32:00:: 01 {'1' * 5000} 4"):
        (tmp_path / "index.sense").write_text(wrong + "\n")
        with pytest.raises(FormatError, match=r"line 1: not a line of WordNet's index.sense"):
            FirstSenses.of_wordnet(tmp_path / "index.sense")
    (tmp_path / "index.sense").write_bytes(b"\xff\n")
    with pytest.raises(InputError, match=r"index.sense, line 1: not UTF-8"):
        FirstSenses.of_wordnet(tmp_path / "index.sense")


@pytest.mark.parametrize(
    ("pos", "kind"),
    [("NN", "n"), ("NNP", "n"), ("NOUN", "n"), ("VB", "v"), ("VERB", "v"), ("JJ", "a"),
     ("ADJ", "a"), ("RB", "r"), ("ADV", "r"), ("IN", "")],
)  # fmt: skip
def test_kinds_of_words_are_the_same_in_all_files(pos, kind):
    assert entry_of(Instance("x", 0, 0, "Well", pos, ())) == ("well", kind)


def test_no_instance_is_refused(model):
    with pytest.raises(InputError, match="no instance is given"):
        disambiguate(SenseAverages(model), FirstSenses({}), [])
