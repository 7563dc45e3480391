"""What the benchmark of bulk embedding measures and compares."""

import os

import pytest

from elmokit.bulk import embed_corpus


@pytest.fixture
def bulk(script):
    return script("bulk")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "paragraphs.txt"
    path.write_text("A cat sat. It slept! A dog\nThe dog barked at 3 cats.\n")
    return str(path)


def test_a_text_that_is_too_short_comes_again(bulk, tmp_path, text):
    corpus, words = bulk.write_corpus(tmp_path, text, 6)
    sentences = ["A cat sat .", "It slept !", "A dog", "The dog barked at 3 cats ."]
    assert corpus.read_text().splitlines() == [*sentences, *sentences[:2]]
    assert words == sum(len(line.split()) for line in [*sentences, *sentences[:2]])
    assert bulk.count_rows(corpus) == 6


def test_shards_are_compared_with_their_corpus(bulk, tmp_path, text, model_folder):
    corpus, _ = bulk.write_corpus(tmp_path, text, 40)
    out = tmp_path / "out"
    embed_corpus(corpus, out, model=model_folder, layers="mean", rows_per_shard=2, workers=1)
    assert bulk.compare(corpus, out, model_folder) == (40, 0, 0)
    # Shard 10 with what belongs into shard 0 is seen.
    (out / "part-00000010.parquet").write_bytes((out / "part-00000000.parquet").read_bytes())
    rows, duplicates, _ = bulk.compare(corpus, out, model_folder)
    assert (rows, duplicates) == (40, 2)


def test_the_speed_is_that_after_the_first_shard(bulk, tmp_path, text, model_folder):
    corpus, _ = bulk.write_corpus(tmp_path, text, 12)
    out = tmp_path / "out"
    embed_corpus(corpus, out, model=model_folder, layers="top", rows_per_shard=4, workers=1)
    for number in range(3):
        os.utime(out / f"part-{number:08d}.parquet", (100 + 2 * number,) * 2)
    assert bulk.words_per_second(out) == pytest.approx(2 * 16 / 4)


def test_memory_and_processes_are_those_of_the_system(bulk):
    if not os.path.exists("/proc/self/smaps_rollup"):
        pytest.skip("needs /proc/self/smaps_rollup, which this system does not have")
    assert 10e6 < bulk.proportional_bytes(os.getpid()) < 100e9
    assert bulk.proportional_bytes(2**22 + 1) == 0
    assert os.getpid() in bulk.descendants(os.getppid())
