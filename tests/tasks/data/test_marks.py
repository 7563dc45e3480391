"""A mark that some editors leave and their ends of lines change nothing that is read."""

import json

import pytest

from elmokit.tasks.data.columns import read_columns
from elmokit.tasks.data.conll2012 import read_conll2012
from elmokit.tasks.data.conllu import read_conllu
from elmokit.tasks.data.gap import read_gap
from elmokit.tasks.data.raganato import read_raganato
from elmokit.tasks.data.roles import read_roles
from elmokit.tasks.data.semcor import read_semcor
from elmokit.tasks.data.squad import read_squad
from elmokit.tasks.data.table import read_labelled, read_pairs, read_stsb
from elmokit.tasks.data.trees import read_trees
from elmokit.tasks.data.wic import read_wic

ANSWER = {"text": "Oslo", "answer_start": 6}
QUESTION = {"id": "1", "question": "Where?", "answers": [ANSWER]}
SQUAD = {"data": [{"paragraphs": [{"context": "It is Oslo", "qas": [QUESTION]}]}]}
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
        (read_roles, ["0\tgo\tVB\tgo\tgo.02\t(V*)\n1\ton\tRP\t-\t-\t(ARG1*)\n"]),
        (read_trees, ["(3 (2 It) (4 works))\n(1 No)\n"]),
        (lambda path: read_labelled(path, str.split), ["pos\tIt works\nneg\tNo\n"]),
        (lambda path: read_pairs(path, str.split), ["a man\ta cat\t2\nno\tyes\t0\n"]),
        (
            lambda path: read_stsb(path, str.split),
            ["main\tx\ty\t1\t2.5\ta man\ta cat\nmain\tx\ty\t2\t5.0\tno\tyes\n"],
        ),
        (lambda path: read_squad(path, str.split), [json.dumps(SQUAD, indent=1)]),
        (read_conll2012, ["#begin document (a); part 0\na\t0\t0\tI\t(0)\n\n#end document\n"]),
        (lambda path: read_gap(path, str.split), [GAP.replace("|", "\t")]),
        (lambda path: [*read_semcor(path)], [SEMCOR]),
        (read_raganato, [RAGANATO, "t art%1:06:00::\n"]),
        (read_wic, ["go\tV\t1-0\tMessages go .\tGo there\n", "F\n"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_files_of_some_editors_are_read_as_others(read, texts, mark, write):
    def files(change):
        return [write(change(text.encode()), f"file{n}") for n, text in enumerate(texts)]

    plain = read(*files(lambda text: text))
    assert plain
    assert read(*files(lambda text: mark + text.replace(b"\n", b"\r\n"))) == plain
