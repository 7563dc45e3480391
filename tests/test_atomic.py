import json
import os
import signal
import subprocess
import sys

import pytest

from elmokit.atomic import (
    DirectoryLock,
    ResumableDirectory,
    new_directory,
    read_checkpoint,
    write_atomically,
    write_checkpoint,
)
from elmokit.errors import FormatError, InputError, OutputError

MANIFEST = {"model": "a1b2", "layers": (0, 1)}


def write(text):
    return lambda file: file.write(text.encode())


def full_disk(file):
    file.write(b"begi")
    raise OSError(28, "No space left on device")


def test_interrupted_work_is_resumed_and_published(tmp_path):
    path, target = tmp_path / "out.partial", tmp_path / "out"
    with ResumableDirectory(path, MANIFEST) as work:
        work.write_part(0, write("zero "))
    with ResumableDirectory(path, MANIFEST) as work:
        assert work.parts() == [work.part_path(0)]
        work.write_part(10, write("ten"))
        work.write_part(9, write("nine "))
        (path / "complete").write_text("".join(part.read_text() for part in work.parts()))
        work.publish("complete", target)
    assert target.read_text() == "zero nine ten"
    assert [*tmp_path.iterdir()] == [target]


def test_work_started_with_other_settings_is_refused(tmp_path):
    with ResumableDirectory(tmp_path / "work", MANIFEST):
        pass
    with (
        pytest.raises(InputError, match=r"started with model a1b2, now c3; finish it as it was"),
        ResumableDirectory(tmp_path / "work", {**MANIFEST, "model": "c3"}),
    ):
        pass
    both = {"model": "c3", "layers": [*range(100)]}
    with (
        pytest.raises(InputError, match="with model a1b2, now c3, and other layers; finish"),
        ResumableDirectory(tmp_path / "work", both),
    ):
        pass


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with (
        pytest.raises(OutputError, match=r"holds thesis.txt, but no manifest.json"),
        ResumableDirectory(tmp_path, MANIFEST),
    ):
        pass
    with (
        pytest.raises(OutputError, match="is a file, expected a directory"),
        ResumableDirectory(tmp_path / "thesis.txt", MANIFEST),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_damaged_manifest_is_named(tmp_path):
    (tmp_path / "manifest.json").write_text('{"model')
    with (
        pytest.raises(FormatError, match=r"manifest.json: is damaged, expected JSON; remove"),
        ResumableDirectory(tmp_path, MANIFEST),
    ):
        pass


def test_two_processes_cannot_write_at_once(tmp_path):
    with (
        ResumableDirectory(tmp_path / "work", MANIFEST, label="out.hdf5") as work,
        pytest.raises(InputError, match=r"^out.hdf5: another process is writing it"),
        ResumableDirectory(work.path, MANIFEST, label="out.hdf5"),
    ):
        pass
    with DirectoryLock(tmp_path / "work", "busy"):  # closing let go of it
        pass


def test_a_full_disk_keeps_the_parts_before_it(tmp_path):
    with ResumableDirectory(tmp_path / "work", MANIFEST) as work:
        work.write_part(0, write("zero"))
        with pytest.raises(OutputError, match=r"\(No space left on device\); what is done is safe"):
            work.write_part(1, full_disk)
        assert [path.name for path in work.parts()] == ["part-000000000000.npz"]
        assert not [*work.path.glob(".*")]


def test_clearing_removes_only_what_belongs_to_the_work(tmp_path):
    with ResumableDirectory(
        tmp_path, {}, part_name="parts/{:03d}.npy", manifest_name="b.json"
    ) as w:
        w.write_part(7, write("seven"))
        (tmp_path / "index").write_text("the result")
        (tmp_path / "draft").write_text("no longer needed")
        assert (tmp_path / "parts/007.npy").is_file()
        w.clear("draft", "absent")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_directory_is_replaced_only_by_a_complete_one(tmp_path, monkeypatch):
    def write_model(text):
        return lambda path: (path.mkdir(), (path / "weights").write_text(text))

    def stop(*_):
        raise KeyboardInterrupt

    model = tmp_path / "work/model"
    with ResumableDirectory(tmp_path / "work", MANIFEST) as work:
        work.replace_directory("model", write_model("first"))
        work.replace_directory("model", write_model("second"))
        assert (model / "weights").read_text() == "second"
        with pytest.raises(KeyboardInterrupt):
            work.replace_directory("model", lambda path: (path.mkdir(), stop()))
        assert (model / "weights").read_text() == "second"
        with monkeypatch.context() as patch:
            patch.setattr("elmokit.atomic.rename_atomically", stop)
            with pytest.raises(KeyboardInterrupt):
                work.replace_directory("model", write_model("third"))
        assert not model.exists()  # as a kill between the two renames leaves it
    with ResumableDirectory(tmp_path / "work", MANIFEST) as work:
        assert (model / "weights").read_text() == "second"
        assert not [*work.path.glob(".*")]
        work.clear("model")
    assert not work.path.exists()


def test_a_manifest_stored_elsewhere_is_checked_when_it_is_read(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    remedy = "give another --out"
    with ResumableDirectory(tmp_path, {"seed": 1}, manifest_name=None, remedy=remedy) as work:
        work.check_manifest({"seed": 1, "threads": 2})
        with pytest.raises(InputError, match="was started with seed 2, now 1; give another --out"):
            work.check_manifest({"seed": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_killed_process_leaves_whole_parts(tmp_path):
    script = (
        "import os, signal, sys, pathlib\n"
        "from elmokit.atomic import ResumableDirectory\n"
        "with ResumableDirectory(pathlib.Path(sys.argv[1]), {}) as work:\n"
        "    work.write_part(0, lambda file: file.write(b'zero'))\n"
        "    work.write_part(1, lambda file: (file.write(b'on'), file.flush(),\n"
        "                                     os.kill(os.getpid(), signal.SIGKILL)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "work")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [*(tmp_path / "work").glob(".*.unfinished")]
    with ResumableDirectory(tmp_path / "work", {}) as work:
        assert [part.read_text() for part in work.parts()] == ["zero"]
        assert not [*work.path.glob(".*.unfinished")]


def test_a_failed_write_keeps_the_old_file(tmp_path):
    write_atomically(tmp_path / "a", write("old"))
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "a", full_disk)
    assert (tmp_path / "a").read_text() == "old"
    assert len([*tmp_path.iterdir()]) == 1


def test_a_new_directory_appears_only_when_complete(tmp_path):
    with pytest.raises(OSError, match="No space"), new_directory(tmp_path / "model") as folder:
        write_atomically(folder / "a", full_disk)
    assert not [*tmp_path.iterdir()]
    with new_directory(tmp_path / "model") as folder:
        (folder / "a").write_text("a")
        assert not (tmp_path / "model").exists()
    assert (tmp_path / "model/a").read_text() == "a"


def test_a_failed_checkpoint_keeps_the_last_one(tmp_path, monkeypatch):
    write_checkpoint({"step": 1}, tmp_path / "c.pt")
    monkeypatch.setattr("torch.save", lambda values, file: full_disk(file))
    with pytest.raises(OutputError, match="the last checkpoint is unharmed"):
        write_checkpoint({"step": 2}, tmp_path / "c.pt")
    assert read_checkpoint(tmp_path / "c.pt", dict) == {"step": 1}
    assert read_checkpoint(tmp_path / "absent.pt", dict) is None


def test_a_manifest_is_stored_as_json(tmp_path):
    with ResumableDirectory(tmp_path / "work", MANIFEST, manifest_name="settings.json") as work:
        stored = json.loads((work.path / "settings.json").read_text())
    assert stored == {"model": "a1b2", "layers": [0, 1]}
    assert os.listdir(tmp_path / "work") == ["settings.json"]
