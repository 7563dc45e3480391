import gzip
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elmokit.bulk.corpus import Corpus, CorpusReader, extended, find_sources
from elmokit.errors import FormatError, InputError

TEXTS = [f"row {number} ." for number in range(10_000)]


def scan(*names, **settings):
    return Corpus.scan(find_sources(map(str, names)), **{"rows_per_shard": 3000, **settings})


def read(corpus, reader=None, shards=None):
    reader = reader or CorpusReader(corpus)
    shards = range(corpus.num_shards) if shards is None else shards
    tables = [table for shard in shards for table in reader.read(corpus.rows_of(shard))]
    return pa.concat_tables(tables)


def write_rows(path, texts=TEXTS):
    """A file of texts in the format and packing that its name says."""
    rows = [{"n": number, "text": text} for number, text in enumerate(texts)]
    name = path.name
    if ".parquet" in name:
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=700)
        return path
    if ".jsonl" in name:
        content = "".join(json.dumps(row) + "\n\n" for row in rows)
    elif ".csv" in name:
        content = "n,text\n" + "".join(f'{row["n"]},"{row["text"]}"\n' for row in rows)
    elif ".tsv" in name:
        content = "n\ttext\n" + "".join(f"{row['n']}\t{row['text']}\n" for row in rows)
    else:
        content = "".join(text + "\n" for text in texts)
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(content.encode()))
    return path


@pytest.mark.parametrize(
    "name",
    ["a.txt", "a.txt.gz", "a.txt.xz", "a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.xz", "a.tsv",
     "a.parquet"],
)  # fmt: skip
def test_rows_of_every_format_are_read_from_any_place(tmp_path, name):
    corpus = scan(write_rows(tmp_path / name))
    assert (corpus.rows, corpus.num_shards, corpus.column) == (10_000, 4, "text")
    table = read(corpus)
    assert table["id"].to_pylist() == [*range(10_000)]
    assert table["text"].to_pylist() == TEXTS
    if "txt" not in name:
        numbers = table["n"].to_pylist()
        assert numbers == [str(n) if "sv" in name else n for n in range(10_000)]
    reader = CorpusReader(corpus)
    for shard in (2, 3, 1, 1, 0):
        part = read(corpus, reader, [shard])
        assert part["text"].to_pylist() == TEXTS[shard * 3000 : (shard + 1) * 3000]
        assert part["id"][0].as_py() == shard * 3000
    assert part.schema == corpus.schema_with_ids


def test_shards_go_over_the_ends_of_files(tmp_path):
    for number in range(5):
        write_rows(tmp_path / f"{number}.txt", TEXTS[:400])
    corpus = scan(tmp_path, rows_per_shard=900)
    assert [len(corpus.rows_of(shard)) for shard in range(corpus.num_shards)] == [900, 900, 200]
    assert read(corpus)["text"].to_pylist() == TEXTS[:400] * 5


def test_files_of_several_formats_are_one_corpus(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\n\ntwo")
    (tmp_path / "b.jsonl").write_text('{"text": "three", "x": 1}\n{"text": "four", "x": 1.5}\n')
    (tmp_path / "c.csv").write_text('text,more\n"five\nlines",m\n')
    table = read(scan(tmp_path))
    assert table.to_pydict() == {
        "id": [0, 1, 2, 3, 4, 5],
        "text": ["one", "", "two", "three", "four", "five\nlines"],
        "x": [None, None, None, 1.0, 1.5, None],
        "more": [None, None, None, None, None, "m"],
    }


def test_lists_of_words_and_ids_are_taken_as_they_are(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"words": ["a", "b"], "id": "x"}\n{"words": [], "id": "y"}')
    corpus = scan(tmp_path / "a.jsonl")
    assert corpus.column == "words"
    assert read(corpus).to_pydict() == {"words": [["a", "b"], []], "id": ["x", "y"]}


def test_addresses_are_read_by_pyarrow(tmp_path):
    write_rows(tmp_path / "a.txt.gz")
    write_rows(tmp_path / "b.txt")
    (tmp_path / ".hidden").touch()
    corpus = scan(f"file://{tmp_path}")
    assert [file.name for file in corpus.files] == [
        f"file://{tmp_path}/a.txt.gz", f"file://{tmp_path}/b.txt",
    ]  # fmt: skip
    assert read(corpus)["text"].to_pylist() == TEXTS * 2


def test_a_file_without_rows_has_none(tmp_path):
    for name, content in {"a.txt": "", "b.csv": "text,n\n", "c.jsonl": "\n"}.items():
        (tmp_path / name).write_text(content)
    assert scan(tmp_path / "a.txt", tmp_path / "b.csv").rows == 0
    with pytest.raises(InputError, match=r"c\.jsonl: has no column 'text' or 'words'"):
        scan(tmp_path / "c.jsonl")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good\nb\xe4d\n", "a.txt, line 2: not UTF-8 .byte 0xe4 at column 2"),
        ("a.jsonl", b'{"text": "a"}\n{"text":\n', "a.jsonl, line 2: not JSON .*expected an object"),
        ("a.jsonl", b'["a"]\n', "a.jsonl, line 1: is a list, expected an object"),
        ("a.jsonl", b'{"text": "a"}\n{"x": 1}\n', "a.jsonl, row 2: has no value in column 'text'"),
        ("a.jsonl", b'{"text": "a"}\n{"text": null}\n', "row 2: has no value in column 'text'"),
        ("a.jsonl", b'{"words": ["a", null]}\n', "row 1: has no value in column 'words'"),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"text": 1}\n',
            "a.jsonl, row 2, column 'text': cannot be in a table",
        ),
        ("a.jsonl", b'{"text": 1}\n', "column 'text' is of type int64, expected text or lists"),
        ("a.jsonl", b'{"body": "a"}\n', "has no column 'text' or 'words', expected body"),
        (
            "a.jsonl",
            b'{"text": "\\ud800"}\n',
            "row 1, column 'text': cannot be .*surrogates",
        ),
        ("a.csv", b"text,n\na,1\nb\n", "a.csv, line 3: has 1 values, expected 2 .text, n."),
        ("a.csv", b"text,text\na,1\n", "its first line is 'text,text', expected the names"),
        ("a.csv", b'text\n"a\n', "a.csv, line 2: not CSV .unexpected end of data"),
        ("a.parquet", b"PAR1", "a.parquet: cannot be read"),
        ("a.txt.gz", gzip.compress(b"some text\n" * 99, mtime=0)[:-9], "a.txt.gz: cannot be read"),
        ("a.txt.xz", lzma.compress(b"some text\n" * 99)[:-9], "a.txt.xz: cannot be read"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_embedded(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((InputError, FormatError), match=message):
        scan(tmp_path / name)


def test_inputs_that_cannot_be_used_are_refused(tmp_path):
    write_rows(tmp_path / "a.txt", TEXTS[:9])
    for names, message in {
        ("-",): "stdin cannot be read twice",
        ("nowhere://x/y",): "nowhere://x/y: cannot be opened",
        (f"file://{tmp_path}/none",): "none: no file there",
        (str(tmp_path / "a.txt"),) * 2: "a.txt: named twice",
        (): "no input is there",
    }.items():
        with pytest.raises(InputError, match=message):
            scan(*names)
    (tmp_path / "b.jsonl").write_text('{"text": ["a"]}\n')
    with pytest.raises(InputError, match=r"b\.jsonl: its columns do not fit those of .*a.txt"):
        scan(tmp_path)
    with pytest.raises(InputError, match="has no column 'body', expected text; name the column"):
        scan(tmp_path / "a.txt", column="body")


def test_numbers_that_would_change_are_refused_at_the_start(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "n": 1}\n{"text": "b", "n": 9007199254740993}')
    (tmp_path / "b.jsonl").write_text('{"text": "c", "n": 1.5}')
    assert scan(tmp_path / "a.jsonl").rows == 2
    with pytest.raises(InputError, match=r"a\.jsonl, row 2: column 'n' has a whole number beyond"):
        scan(tmp_path)
    with pytest.raises(InputError, match=r"a\.jsonl, row 2: column 'n' has a whole number beyond"):
        scan(tmp_path / "b.jsonl", tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text('{"text": "a", "n": 9007199254740992}')
    assert read(scan(tmp_path))["n"].to_pylist() == [2.0**53, 1.5]
    pq.write_table(pa.table({"text": ["a"], "n": [1]}), tmp_path / "c.parquet")
    with pytest.raises(InputError, match=r"c\.parquet: column 'n' is of type int64, but of type"):
        scan(tmp_path)


def test_marks_and_what_is_in_the_output_are_no_input(tmp_path):
    for name in ("a.txt", "_SUCCESS", "_logs/1.txt", ".hidden", "out/part.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text\n")
    (tmp_path / "empty.csv").write_text("other\n")
    for folder in (str(tmp_path), f"file://{tmp_path}"):
        sources = find_sources([folder], output=f"{folder}/out")
        assert [source.name for source in sources] == [f"{folder}/a.txt", f"{folder}/empty.csv"]
    corpus = Corpus.scan(sources, rows_per_shard=10)
    assert corpus.schema.names == ["text"]  # a file without rows adds no column


def test_addresses_are_extended_before_their_query():
    assert extended("s3://bucket/v?region=x", "/part") == "s3://bucket/v/part?region=x"
    assert extended("s3://bucket/v/", ".input") == "s3://bucket/v.input"
    assert extended("folder/", "/part") == "folder/part"


def test_a_file_that_shrinks_while_it_is_embedded_is_named(tmp_path):
    path = write_rows(tmp_path / "a.txt.gz")
    corpus = scan(path)
    write_rows(path, TEXTS[:5000])
    with pytest.raises(InputError, match=r"a.txt.gz: has 5,000 rows, but had 10,000"):
        read(corpus)


def test_a_corpus_is_known_again_by_sizes_and_times(tmp_path):
    path = write_rows(tmp_path / "a.txt", TEXTS[:9])
    corpus = scan(path)
    assert corpus.unless_changed(find_sources([str(path)])) == corpus
    path.write_text("changed\n")
    assert corpus.unless_changed(find_sources([str(path)])) is None
