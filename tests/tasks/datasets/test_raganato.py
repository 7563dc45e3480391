import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.example_records import SenseInstance, SenseTaggedSentence
from elmokit.tasks.datasets.senses import read_raganato

DATA = """<?xml version="1.0"?>
<corpus lang="en">
<text id="d0">
<sentence id="d0.s0">
<wf lemma="New_York" pos="NOUN">New York</wf>
<instance id="d0.s0.t0" lemma="art" pos="NOUN">art &amp; craft</instance>
</sentence>
</text>
</corpus>
"""
GOLD = "d0.s0.t0 art%1:06:00:: art%1:04:00::\n"


def test_an_instance_has_all_its_keys(write):
    keys = ("art%1:06:00::", "art%1:04:00::")
    assert read_raganato(write(DATA, "a"), write(GOLD, "b")) == [
        SenseTaggedSentence(
            "d0.s0",
            ("New", "York", "art", "&", "craft"),
            (SenseInstance("d0.s0.t0", 2, 4, "art", "NOUN", keys),),
        )
    ]


@pytest.mark.parametrize(
    ("data", "gold", "message"),
    [
        ("", GOLD, "a, line 1: not well-formed XML"),
        (DATA[:-20], GOLD, "not well-formed XML .*; was the file cut short"),
        (DATA.replace("</wf>", "</w>"), GOLD, "a, line 5: not well-formed XML"),
        ("<corpus></corpus>", "", "a: holds no example"),
        (DATA, "", "a, line 6: instance d0.s0.t0 has no line in the gold file"),
        (DATA, GOLD + "d0.s0.t1 art%1:06:00::\n", "b, line 2: d0.s0.t1 is not in .*a"),
        (DATA, GOLD + GOLD, "b, line 2: d0.s0.t0 is there twice"),
        (DATA, GOLD + "\u00a0\n", "b, line 2: .*, expected an id and keys"),
        (DATA.replace(">New", "><wf>New</wf>"), GOLD, "a, line 5: <wf> within <wf>"),
        (DATA, "d0.s0.t0\n", "b, line 1: 'd0.s0.t0', expected an id and keys"),
        (DATA.replace(' lemma="art"', ""), GOLD, "a, line 6: <instance> without lemma"),
        (DATA.replace("New York", " "), GOLD, "a, line 5: an empty <wf>"),
        (DATA.replace("sentence", "s"), GOLD, "a, line 5: <wf> in no sentence"),
        ('<!DOCTYPE c [\n<!ENTITY a "aa">]><c>&a;</c>', GOLD, "a, line 2: declares the entity 'a'"),
    ],
)
def test_malformed_raganato_is_refused_with_its_line(data, gold, message, write):
    with pytest.raises(FormatError, match=message):
        read_raganato(write(data, "a"), write(gold, "b"))


@pytest.mark.parametrize(("name", "instances"), [("S10amended", 955), ("42D", 370)])
def test_the_published_files_are_read_completely(name, instances, labelled):
    folder = labelled / "wsd_eval"
    read = read_raganato(folder / f"{name}.data.xml", folder / f"{name}.gold.key.txt")
    assert sum(len(sentence.instances) for sentence in read) == instances
