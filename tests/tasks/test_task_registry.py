"""Every task reads its files and scores predictions as usual in its field."""

import subprocess
import sys
from dataclasses import replace

import pytest

from elmokit.errors import FormatError
from elmokit.tasks.datasets.example_records import Document, PredicateRoles, TaggedSentence
from elmokit.tasks.task_registry import TASKS


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


@pytest.mark.full
@pytest.mark.parametrize("module", ["heads.tagger", "heads.srl", "task_registry"])
def test_all_tasks_are_registered_whichever_module_is_imported_first(module):
    code = f"import elmokit.tasks.{module}, elmokit.tasks.task_registry as r; print(*r.TASKS)"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.split() == [*TASKS] == sorted(TASKS)
