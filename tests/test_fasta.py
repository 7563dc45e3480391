"""FASTA files, and proteins embedded into HDF5 as SeqVec and bio_embeddings did."""

import gzip
import hashlib
import io
import os
import threading

import h5py
import numpy as np
import pytest

import elmokit
from elmokit.errors import InputError
from elmokit.fasta import Identifiers, Protein, is_fasta, read_fasta
from elmokit.file_embedding import HDF5Writer

FASTA = """\
>sp|P12345|NAME_HUMAN A protein OS=Homo sapiens
SEQ
wence

>tr|Q9/1|OTHER
 M K*-XUZ\t
>sp|EMPTY|NONE
"""
PROTEINS = {"P12345": "SEQWENCE", "Q9/1": "MK*-XUZ", "EMPTY": ""}


@pytest.fixture
def fasta(tmp_path):
    path = tmp_path / "proteins.fasta"
    path.write_text(FASTA)
    return path


def datasets(path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name: item[...]} if hasattr(item, "dtype") else {})
        )
    return found


def test_lines_of_any_width_and_case_are_one_sequence(fasta, tmp_path):
    proteins = [*read_fasta(fasta)]
    assert [protein.original_id for protein in proteins] == [
        "sp|P12345|NAME_HUMAN", "tr|Q9/1|OTHER", "sp|EMPTY|NONE",
    ]  # fmt: skip
    assert ["".join(protein.residues) for protein in proteins] == [*PROTEINS.values()]
    assert proteins[0].sequence == "SEQwence"
    assert [Protein.parse(str(protein)) for protein in proteins] == proteins
    packed = tmp_path / "windows.fa.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + FASTA.replace("\n", "\r\n").encode()))
    assert [*read_fasta(packed)] == proteins
    assert [*read_fasta(tmp_path)] == proteins * 2  # a folder
    (tmp_path / "empty.fasta").write_text("")
    assert [*read_fasta(tmp_path / "empty.fasta")] == []


def test_residues_before_the_first_header_are_refused(tmp_path):
    (tmp_path / "text.fasta").write_text("\nMKV\n>a\nMKV\n")
    with pytest.raises(InputError, match=r"text\.fasta, line 2: 'MKV' stands before the first hea"):
        [*read_fasta(tmp_path / "text.fasta")]


@pytest.mark.parametrize(
    ("header", "identifiers", "expected"),
    [
        ("sp|P12345|NAME x", Identifiers(), "P12345"),
        ("NAME x", Identifiers(), "NAME"),
        ("", Identifiers(), ""),
        ("sp|P12345|NAME x", Identifiers(2), "NAME x"),
        ("sp|P12345|NAME x", Identifiers(-1), "sp|P12345|NAME x"),
        (">a > b", Identifiers(-1), "a  b"),
        ("UniRef50_A0 n=1", Identifiers(0, " "), "UniRef50_A0"),
        ("x", Identifiers("md5"), hashlib.md5(b"MKv").hexdigest()),
    ],
)
def test_the_identifier_is_a_part_of_the_header_or_a_hash(header, identifiers, expected):
    assert identifiers.of(Protein(header, "MKv")) == expected


def test_identifiers_that_cannot_be_had_are_refused():
    with pytest.raises(InputError, match=r"the header 'x' has no part 1 between '\|'; choose anot"):
        Identifiers(1).of(Protein("x", ""))
    with pytest.raises(InputError, match="id_field is 'sha1', expected a number or 'md5'"):
        Identifiers("sha1")
    with pytest.raises(InputError, match="the character that splits headers is empty"):
        Identifiers(separator="")


def test_fasta_is_known_by_its_ending():
    for name in ("a.fasta", "b.FA", "c.d.faa.gz", "e.fas.zst"):
        assert is_fasta(name)
    for name in ("a.txt", "b.fasta.txt", "c.gz", "-", "fasta"):
        assert not is_fasta(name)


def test_every_residue_has_its_vectors_under_the_proteins_identifier(model, fasta, tmp_path):
    target = tmp_path / "out.h5"
    assert elmokit.embed_fasta(model, fasta, target) == 3
    found = datasets(target)
    assert found.keys() == PROTEINS.keys()
    for name, sequence in PROTEINS.items():
        assert found[name].shape == (3, len(sequence), 12)
        np.testing.assert_array_equal(found[name], model.embed([list(sequence)])[0])
    with h5py.File(target) as file:
        assert file["P12345"].attrs["original_id"] == "sp|P12345|NAME_HUMAN"
        assert file.attrs["split"] == "characters"
    assert sorted(os.listdir(tmp_path)) == ["out.h5", "proteins.fasta"]


@pytest.mark.parametrize(
    ("layers", "combine"),
    [
        ("sum", lambda a: a.sum(0)),
        ("concat", lambda a: np.concatenate(a, 1)),
        (0, lambda a: a[0]),
        (2, lambda a: a[2]),
        ([0, 2], lambda a: a[[0, 2]]),
    ],
)
@pytest.mark.parametrize("pooling", [None, "mean", "max"])
def test_layers_and_pooling_are_those_of_seqvec(model, fasta, tmp_path, layers, combine, pooling):
    elmokit.embed_fasta(model, fasta, tmp_path / "out.h5", layers=layers, pooling=pooling)
    found = datasets(tmp_path / "out.h5")
    for name in ("P12345", "Q9/1"):
        expected = combine(model.embed([list(PROTEINS[name])])[0])
        if pooling is not None:
            expected = getattr(expected, pooling)(-2)
        assert found[name].shape == expected.shape
        np.testing.assert_allclose(found[name], expected, atol=2e-6)
    assert found["EMPTY"].shape == (
        expected.shape if pooling else (*expected.shape[:-2], 0, 12)
    ) or (layers == "concat")
    assert not found["EMPTY"].any()


def test_with_a_carried_state_batches_are_those_of_seqvec(model_folder, tmp_path):
    lengths = [7, 3, 12, 1, 3, 30, 2, 5, 1]
    path = tmp_path / "p.fasta"
    path.write_text("".join(f">p{n}\n{'MKVLAS' * 5:.{k}}\n" for n, k in enumerate(lengths)))
    model = elmokit.load(model_folder, state="carry", tokens_per_batch=10)
    elmokit.embed_fasta(model, path, tmp_path / "out.h5")
    found = datasets(tmp_path / "out.h5")
    batches = [[3, 8, 6, 1, 4, 7], [0], [2], [5]]  # by length; more than 10, or one of more than 5
    model = elmokit.load(model_folder, state="carry")
    for batch in batches:
        arrays = model.embed([list("MKVLAS" * 5)[: lengths[number]] for number in batch])
        for number, array in zip(batch, arrays, strict=True):
            np.testing.assert_allclose(found[f"p{number}"], array, atol=2e-6)


@pytest.mark.parametrize("state", ["zero", "carry"])
def test_a_killed_run_goes_on_with_the_same_bits(model_folder, fasta, tmp_path, monkeypatch, state):
    many = "".join(f">p{n}\n{'MKVLAS' * 9:.{n}}\n" for n in range(1, 40))
    fasta.write_text(many)
    model = elmokit.load(model_folder, state=state, tokens_per_batch=64)
    elmokit.embed_fasta(model, fasta, tmp_path / "expected.h5", layers="sum")
    append, calls = HDF5Writer.append, []

    def stop_at_the_third(self, *args, **options):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        append(self, *args, **options)

    monkeypatch.setattr(HDF5Writer, "append", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        elmokit.embed_fasta(model, fasta, tmp_path / "out.h5", layers="sum")
    assert not (tmp_path / "out.h5").exists()
    monkeypatch.undo()
    model = elmokit.load(model_folder, state=state, tokens_per_batch=64)
    assert elmokit.embed_fasta(model, fasta, tmp_path / "out.h5", layers="sum") == 39
    found, expected = datasets(tmp_path / "out.h5"), datasets(tmp_path / "expected.h5")
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_two_proteins_of_one_identifier_are_refused_before_any_work(model, fasta, tmp_path):
    fasta.write_text(FASTA + ">sp|P12345|AGAIN\nMKV\n>x\nMKV\n")
    with pytest.raises(InputError, match=r"proteins 1 and 4 have the same identifier \('P12345'\)"):
        elmokit.embed_fasta(model, fasta, tmp_path / "out.h5")
    with pytest.raises(InputError, match="proteins 4 and 5 have the same sequence"):
        elmokit.embed_fasta(model, fasta, tmp_path / "out.h5", identifiers=Identifiers("md5"))
    assert os.listdir(tmp_path) == ["proteins.fasta"]


def test_an_identifier_that_is_no_key_leaves_nothing_behind(model, fasta, tmp_path):
    fasta.write_text(">sp|Q9|x\nM\n>sp|Q9/1|x\nM\n")
    with pytest.raises(
        InputError, match=r"protein 2 \('Q9/1'\) cannot be a key: it and an earlier"
    ):
        elmokit.embed_fasta(model, fasta, tmp_path / "out.h5")
    assert os.listdir(tmp_path) == ["proteins.fasta"]


class Stdin:
    def __init__(self, text):
        self.buffer = io.BufferedReader(io.BytesIO(text.encode()))


def test_stdin_is_read_once(model, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", Stdin(FASTA))
    assert elmokit.embed_fasta(model, "-", tmp_path / "out.h5", layers="top") == 3
    assert datasets(tmp_path / "out.h5").keys() == PROTEINS.keys()
    monkeypatch.setattr("sys.stdin", Stdin(">a\nM\n>a\nK\n"))
    with pytest.raises(
        InputError, match=r"protein 2 \('a'\) cannot be a key: it is the key of an earl"
    ):
        elmokit.embed_fasta(model, "-", tmp_path / "twice.h5")
    assert os.listdir(tmp_path) == ["out.h5"]


def test_proteins_are_read_from_a_pipe(model, tmp_path):
    os.mkfifo(tmp_path / "pipe.fasta")
    writer = threading.Thread(target=(tmp_path / "pipe.fasta").write_text, args=[FASTA])
    writer.start()
    assert elmokit.embed_fasta(model, tmp_path / "pipe.fasta", tmp_path / "out.h5") == 3
    writer.join()
    assert {*datasets(tmp_path / "out.h5")} == {*PROTEINS}
