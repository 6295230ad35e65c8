"""The file of coefficients: read as written, refused by name when it holds something else."""

import json

import pytest

from specret.hybrid.calibration import Calibration, Table
from specret.hybrid.confidences import (
    Confidences,
    Gain,
    load_confidences,
    save_confidences,
    source_set,
)
from specret.types import SpecretError

GAIN = Gain((0, 4, 8), (1.0, 2.0, 2.5), 0.001)


def some_confidences():
    tables = [Table("depth", (1.5,), (0.0, 0.5, -0.5)), Table("prompt.prob", (), (-1.0, 1.0))]
    return Confidences(
        {("prompt", "dense"): Calibration(("prompt", "dense"), 0.25, tables)},
        {"rest": GAIN, "hybrid:prompt+dense": GAIN},
        {"command": "a command", "model": {"weights": "abc"}},
    )


def test_what_is_written_is_read_back(tmp_path):
    written, file = some_confidences(), tmp_path / "c.json"
    save_confidences(written, file)
    read = load_confidences(file)
    assert read.gains == written.gains
    assert read.provenance == written.provenance
    one = read.calibration(("prompt", "dense"))
    assert (one.bias, one.tables) == (0.25, written.calibrations[("prompt", "dense")].tables)
    assert [f.name for f in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda b: b.update(schema_version=99), "schema version 99, expected 1"),
        (lambda b: b.pop("gains"), "gains"),
        (lambda b: b["gains"]["rest"].update(nodes=[0, 4]), "2 nodes and 3 tokens"),
        (lambda b: b["gains"]["rest"].update(nodes=[4, 0, 8]), "ascending from 0"),
        (lambda b: b["gains"]["rest"].update(tokens=[0.5, 1, 2]), "below 1"),
        (lambda b: b["calibrations"].update(nonsense={}), "'nonsense' is unknown"),
        (lambda b: b["calibrations"]["prompt+dense"]["tables"][0].update(edges=[]), "weights"),
        (lambda b: b["calibrations"]["prompt+dense"].update(tables=3), "not iterable"),
        (lambda b: b["calibrations"]["prompt+dense"].update(bias="x"), "convert"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_by_name(damage, fault, tmp_path):
    file = tmp_path / "c.json"
    save_confidences(some_confidences(), file)
    body = json.loads(file.read_text())
    damage(body)
    file.write_text(json.dumps(body))
    with pytest.raises(SpecretError, match=fault) as caught:
        load_confidences(file)
    assert str(file) in str(caught.value)
    assert "make_confidences" in caught.value.hint


def test_a_missing_file_and_a_torn_one_are_refused(tmp_path):
    with pytest.raises(SpecretError, match="no confidences at"):
        load_confidences(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text("{")
    with pytest.raises(SpecretError, match="does not hold confidences"):
        load_confidences(tmp_path / "torn.json")


def test_what_was_not_fitted_is_named_with_what_was():
    with pytest.raises(SpecretError, match=r"sources prompt, expected one of: prompt\+dense"):
        some_confidences().calibration(("prompt",))
    with pytest.raises(SpecretError, match="no gain curve for eagle, expected one of: rest"):
        some_confidences().gain("eagle")


def test_gains_are_linear_between_what_was_measured():
    assert [GAIN(n) for n in (0, 2, 4, 6, 8, 99)] == [1.0, 1.5, 2.0, 2.25, 2.5, 2.5]


@pytest.mark.parametrize("given", ["dense, prompt", ["dense", "prompt"], ("prompt", "dense")])
def test_sources_are_put_in_one_order(given):
    assert source_set(given) == ("prompt", "dense")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("", "unknown"),
        ([], "no sources"),
        ("prompt,web", "'web' is unknown"),
        ("prompt,prompt", "twice"),
    ],
)
def test_other_sources_are_refused(given, fault):
    with pytest.raises(SpecretError, match=fault):
        source_set(given)
