"""Byte order marks and Windows line breaks do not change what is read."""

import json

import pytest

from elmokit.tasks.datasets.columns import read_columns, read_conllu, read_propbank
from elmokit.tasks.datasets.coreference import read_coreference
from elmokit.tasks.datasets.senses import read_raganato, read_semcor
from elmokit.tasks.datasets.squad import read_squad
from elmokit.tasks.datasets.text_tables import read_labelled, read_pairs, read_trees

ANSWER = {"text": "Oslo", "answer_start": 6}
QUESTION = {"id": "1", "question": "Where?", "answers": [ANSWER]}
SQUAD = {"data": [{"paragraphs": [{"context": "It is Oslo", "qas": [QUESTION]}]}]}
DOCUMENT = "#begin document (a); part 0\na\t0\t0\tI\t(0)\n\n#end document\n"
GAP = """ID|Text|Pronoun|Pronoun-offset|A|A-offset|A-coref|B|B-offset|B-coref|URL
1|Ann met Bo . She left .|She|13|Ann|0|TRUE|Bo|8|FALSE|x
"""
SEMCOR = """<contextfile concordance=brown>
<context filename=a>
<s snum=1>
<wf cmd=done pos=NN lemma=jury wnsn=1 lexsn=1:14:00::>jury</wf>
</s>
</context>
</contextfile>
"""
RAGANATO = """<corpus>
<text id="d"><sentence id="s">
<instance id="t" lemma="art" pos="NOUN">art</instance>
</sentence></text>
</corpus>
"""


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (read_columns, ["Ada NNP B-PER\nleft VBD O\n\nBo NNP B-PER\n"]),
        (read_conllu, ["1\tAda\tAda\tPROPN\t_\t_\t_\t_\t_\t_\n\n"]),
        (read_propbank, ["0\tgo\tVB\tgo\tgo.02\t(V*)\n1\ton\tRP\t-\t-\t(ARG1*)\n"]),
        (read_trees, ["(3 (2 It) (4 works))\n(1 No)\n"]),
        (lambda path: read_labelled(path, str.split), ["pos\tIt works\nneg\tNo\n"]),
        (lambda path: read_pairs(path, str.split), ["a man\ta cat\t2\nno\tyes\t0\n"]),
        (lambda path: read_squad(path, str.split), [json.dumps(SQUAD, indent=1)]),
        (lambda path: read_coreference(path, str.split), [DOCUMENT]),
        (lambda path: read_coreference(path, str.split), [GAP.replace("|", "\t")]),
        (lambda path: [*read_semcor(path)], [SEMCOR]),
        (read_raganato, [RAGANATO, "t art%1:06:00::\n"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_byte_order_marks_and_crlf_change_nothing(read, texts, mark, write):
    def files(change):
        return [write(change(text.encode()), f"file{n}") for n, text in enumerate(texts)]

    plain = read(*files(lambda text: text))
    assert plain
    assert read(*files(lambda text: mark + text.replace(b"\n", b"\r\n"))) == plain
