"""A package around a model is built into a wheel, and once that is installed, has a name."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import elmokit
from elmokit import formats
from elmokit.cli import app
from elmokit.errors import InputError
from elmokit.formats.native import with_metadata
from elmokit.model_package import write_package
from elmokit.toml_settings import read_toml

# What a program sees that finds the package, and nothing else, beside elmokit.
PROGRAM = """
import elmokit
[model] = elmokit.models("klingon")
pretrained = elmokit.load("klingon").pretrained
print(model.description, model.languages, model.licence, model.package, sep="|")
print(model.tokenizer, model.layers, model.dimensions, model.softmax, sep="|")
print(pretrained.fingerprint(), pretrained.tokenizer)
print(ascii(pretrained.card))
"""


def built(package: Path, folder: Path) -> Path:
    """The files of the package's wheel, as pip unpacks them."""
    (wheel,) = WheelBuilder(str(package)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


def test_an_installed_package_gives_the_model_its_name(model_folder, tmp_path):
    card = "# Klingon\n\nText: “Hamlet”, restored.\n"
    (source := tmp_path / "source").mkdir()
    formats.save(formats.load(model_folder), source / "model")
    (source / "model" / "README.md").write_text(card, encoding="utf-8")
    command = [
        "package", str(source / "model"), str(tmp_path / "elmokit-klingon"), "--name", "klingon",
        "--language", "tlh", "--licence", "CC-BY-SA-4.0", "--version", "1.2.0",
        "--description", 'The "original" {Klingon}',
    ]  # fmt: skip
    app(command, prog_name="elmo", standalone_mode=False)
    assert (tmp_path / "elmokit-klingon" / "README.md").read_text("utf-8") == card
    site = built(tmp_path / "elmokit-klingon", tmp_path)
    program = f"import sys; sys.path.insert(0, {str(site)!r}){PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    original = formats.load(model_folder)
    config = original.model.bilm.config
    assert done.stdout.splitlines() == [
        "The \"original\" {Klingon}|('tlh',)|CC-BY-SA-4.0|elmokit-klingon 1.2.0",
        f"{original.tokenizer}|{config.num_layers + 1}|{config.output_size}"
        f"|{original.model.softmax is not None}",
        f"{original.fingerprint()} {original.tokenizer}",
        ascii(with_metadata(card)),
    ]


def test_the_chinese_package_gives_its_model_a_name(tmp_path):
    package = Path(__file__).parents[1] / "packages" / "elmokit-chinese"
    site = built(package, tmp_path)
    assert sum(path.stat().st_size for path in site.rglob("*")) <= 20e6
    program = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import elmokit\n"
        "model = elmokit.load('chinese')\n"
        "print(model.next_words('上海是中国最大的城', k=1)[0].word)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "市\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "Klingon"}, "name is 'Klingon'"),
        ({"name": "../klingon"}, "name is"),
        ({"name": "klingon", "version": "first"}, "version is 'first'"),
        ({"name": "klingon", "licence": "CC BY-SA 4.0"}, "expected an SPDX expression such as CC-"),
        ({"name": "klingon", "licence": "not stated"}, "licence is 'not stated'"),
        (
            {"name": "klingon", "description": "two\nlines"},
            r"has the character '\\n', expected one",
        ),
        ({"name": "klingon", "description": "deleted\x7f"}, r"has the character '\\x7f'"),
    ],
)
def test_values_that_no_package_can_have_are_refused(model_folder, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        write_package(model_folder, tmp_path / "package", **options)
    assert not (tmp_path / "package").exists()


@pytest.mark.parametrize("languages", ["tlh", ["tlh"]])
def test_languages_and_a_licence_are_written_as_they_were_given(model_folder, tmp_path, languages):
    licence = "(MIT or GPL-2.0+) AND LicenseRef-Klingon"
    write_package(
        model_folder, tmp_path / "package", name="klingon", languages=languages, licence=licence
    )
    models = read_toml(tmp_path / "package" / "elmokit_klingon" / "models.toml")["group"][0]
    assert models["models"][0]["languages"] == ["tlh"]
    assert read_toml(tmp_path / "package" / "pyproject.toml")["project"]["license"] == licence


def test_an_existing_folder_is_refused(model_folder, tmp_path):
    with pytest.raises(InputError, match="exists already"):
        write_package(model_folder, tmp_path, name="klingon")


def test_the_function_is_public():
    assert elmokit.write_package is write_package
