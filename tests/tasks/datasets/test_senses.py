import gzip
import io
import lzma
import tarfile

import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.example_records import SenseInstance, SenseTaggedSentence
from elmokit.tasks.datasets.senses import read_raganato, read_semcor

WORDS = """<wf cmd=done pos=NN lemma=jury wnsn=1 lexsn=1:14:00::>jury</wf>
<wf cmd="done" pos="VB" lemma="take_place" wnsn="1;2" lexsn="2:30:00::;2:30:01::">took_place</wf>
<wf cmd=ignore pos=CC>_&amp;</wf>
<punc>_</punc>"""


def context(words=WORDS, end="</s>"):
    return (
        '<contextfile concordance="brown">\n<context filename="br-a01" paras="yes">\n'
        f'<p pnum="1">\n<s snum="1">\n{words}\n{end}\n</p>\n</context>\n</contextfile>\n'
    )


def archive(**files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"semcor/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def expected_sentence(name):
    return SenseTaggedSentence(
        f"{name}.1",
        ("jury", "took", "place", "&", "_"),
        (
            SenseInstance(f"{name}.1.1", 0, 0, "jury", "NN", ("jury%1:14:00::",)),
            SenseInstance(
                f"{name}.1.2", 1, 2, "take_place", "VB",
                ("take_place%2:30:00::", "take_place%2:30:01::"),
            ),
        ),
    )  # fmt: skip


def test_an_archive_is_read_without_unpacking_it(write):
    files = archive(brown1_a=context(), README="read me", brown1_="", brown2_b=context())
    for path in (write(files, "a.tar"), write(lzma.compress(files), "b.tar.xz")):
        assert [*read_semcor(path)] == [
            expected_sentence("brown1_a"),
            expected_sentence("brown2_b"),
        ]


def test_a_single_file_is_read(write):
    assert [*read_semcor(write(context(), "mine.xml"))] == [expected_sentence("mine")]
    assert [*read_semcor(write(lzma.compress(context().encode()), "mine.xz"))] == [
        expected_sentence("mine")
    ]


def test_senses_that_wordnet_lacks_are_dropped(write):
    words = """<wf pos=NN lemma=a wnsn=0 lexsn=1:00:00::>a</wf>
<wf pos=JJ lemma=down wnsn=0;2 lexsn=5:00:00:low:01;5:00:00:out(p):02>down</wf>"""
    (sentence,) = read_semcor(write(context(words), "mine"))
    assert sentence.words == ("a", "down")
    assert sentence.instances == (
        SenseInstance("mine.1.1", 1, 1, "down", "JJ", ("down%5:00:00:out:02",)),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no sentence"),
        (archive(README="read me"), "holds no sentence"),
        ("plain text\n", "line 1: 'plain text', expected <s snum=…>"),
        (context("word"), "line 5: 'word', expected <wf>, <punc> or </s>"),
        (context("<s snum=2>"), "line 5: '<s snum=2>', expected <wf>"),
        (context(end=""), "line 10: '</p>', expected <wf>"),
        (context().split("</s>")[0], "line 4: a sentence without </s>"),
        (context("<punc></punc>"), "line 5: an empty word"),
        (context("<wf lexsn=1:14:00::>a</wf>"), "line 5: a word with a sense has no lemma"),
        (context("<wf lemma=a pos=NN lexsn=1:14:00::>a</wf>"), "line 5: a word .* has no wnsn"),
        (
            context("<wf lemma=a pos=NN wnsn=1 lexsn=1:14>a</wf>"),
            "line 5: sense 'a%1:14', expected four",
        ),
        (
            context("<wf lemma=a pos=NN wnsn=1 lexsn=1:14:00::;1:14:01::>a</wf>"),
            "line 5: 2 senses in lexsn, but 1 in wnsn",
        ),
        (lzma.compress(archive(a=context() * 100))[:-40], "cannot be decompressed"),
        (gzip.compress(archive(a=context() * 100))[:-40], "cannot be decompressed"),
        (archive(a=context() * 100)[:2000], "cannot be decompressed"),
    ],
)
def test_malformed_semcor_is_refused_with_its_line(text, message, write):
    with pytest.raises(FormatError, match=message):
        [*read_semcor(write(text))]


def test_an_error_in_an_archive_names_the_file_in_it(write):
    with pytest.raises(FormatError, match=r"file.txt, semcor/bad, line 5: 'word'"):
        [*read_semcor(write(archive(good=context(), bad=context("word"))))]


def test_the_published_archive_is_read_completely(labelled):
    path = labelled / "wsd_semcor/semcor.tar.xz"
    keys = [i.keys for sentence in read_semcor(path) for i in sentence.instances]
    assert len(keys) == 225_774  # of 233,870 tagged words; WordNet 3.0 has no sense of the others
    assert not any("(" in key for own in keys for key in own)


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
def test_the_published_evaluation_is_read_completely(name, instances, labelled):
    folder = labelled / "wsd_eval"
    read = read_raganato(folder / f"{name}.data.xml", folder / f"{name}.gold.key.txt")
    assert sum(len(sentence.instances) for sentence in read) == instances
