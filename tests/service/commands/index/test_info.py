"""What ``aladin index info`` says of probabilities."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aladin_index.generations.info import IndexInfo, describe
from aladin_index.generations.published import store_calibration
from aladin_network.calibration.calibration import Calibration, ShortTexts, write_calibration
from aladin_network.calibration.fitted_on import TextLengths, sample_photos
from aladin_network.checkpoint_files import read_model_id
from aladin_service.cli import app
from aladin_service.reports.index_facts import calibration_warnings, index_facts, taken_over_line


def info(*words: object) -> Result:
    """Run the command; it has to succeed."""
    result = CliRunner().invoke(app, ["index", "info", *map(str, words)])
    assert result.exit_code == 0, result.stderr
    return result


def test_an_index_without_a_calibration_says_so(index_folder: Path) -> None:
    result = info(index_folder)
    assert "none, not calibrated" in result.stdout
    assert "warning" not in result.stderr
    assert json.loads(info(index_folder, "--json").stdout)["calibration"] is None


def test_a_calibration_is_told_with_what_it_is_worth(calibrated_index: Path) -> None:
    result = info(calibrated_index)
    shown = " ".join(result.stdout.split())
    assert "fitted on 40 photos and 40 texts (captions.jsonl, val)" in shown
    figures = (
        "ECE 0.020 of hits, 0.020 of any match; AUROC of any match 0.900 (0.850 to 0.950); no "
        "match below 0.250"
    )
    assert shown.count(figures) == 2
    told = json.loads(info(calibrated_index, "--json").stdout)["calibration"]
    assert (told["pool"], told["fitted_on"]["photos"]) == (20, 40)


def test_what_is_not_judged_is_told(
    index_folder: Path, make_calibration: Callable[..., Calibration]
) -> None:
    described = replace(
        describe(index_folder),
        calibration=make_calibration("any", auroc=0.66),
        fitted_photos_indexed=None,
    )

    def told(info: IndexInfo) -> list[str]:
        return [" ".join(fact).strip() for fact in index_facts(info)]

    weak = (
        "never judged, no probability is shown: the index's calibration hardly tells queries that "
        "have a match from those that have none (AUROC of any match below 0.75)"
    )
    assert f"text to image {weak}" in told(described)
    assert f"image to text {weak}" in told(described)
    assert "fitted texts 1 to 30 tokens" in told(described)
    calibration = make_calibration("any")
    assert not any(
        "never judged" in fact for fact in told(replace(described, calibration=calibration))
    )
    old = replace(calibration, fitted_on=replace(calibration.fitted_on, text_lengths=None))
    facts = told(replace(described, calibration=old))
    assert "fitted texts their lengths were not recorded" in facts
    assert sum("never judged" in fact for fact in facts) == 2


@pytest.mark.parametrize(
    ("share", "says"),
    [
        (0.0, "none of them is in this index"),
        (0.25, "about 25% of them are in this index"),
        (0.5, None),
        (1.0, None),
    ],
)
def test_a_build_says_that_its_calibration_is_of_other_photos(
    index_folder: Path,
    make_calibration: Callable[..., Calibration],
    share: float,
    says: str | None,
) -> None:
    made = make_calibration("any")
    fitted_on = replace(made.fitted_on, photo_sample=["f00d"])
    described = replace(
        describe(index_folder),
        calibration=replace(made, fitted_on=fitted_on),
        fitted_photos_indexed=share,
    )
    line = taken_over_line(described)
    if says is None:
        assert line is None
    else:
        assert line == (
            "the probabilities are the model's, fitted on 40 photos of captions.jsonl, split val: "
            f"{says}; to fit them to this index: aladin calibrate CHECKPOINT DATA --index "
            f"{index_folder}"
        )
        assert ("  fitted photos", says) in index_facts(described)
    # Fitted to the index itself, there is nothing to say.
    assert taken_over_line(replace(described, fitted_photos_indexed=None)) is None
    # Of an older version's, nobody knows.
    old = replace(described, calibration=made, fitted_photos_indexed=None)
    assert ": which photos was not recorded; to fit" in (taken_over_line(old) or "")
    assert taken_over_line(replace(old, calibration=None)) is None


def test_a_calibration_of_other_photos_is_named(
    index_folder: Path, make_calibration: Callable[..., Calibration]
) -> None:
    made = replace(make_calibration("any"), other_photos=True)
    described = replace(describe(index_folder), calibration=made)
    assert (taken_over_line(described) or "").startswith(
        "the probabilities are not used: they were fitted on captions.jsonl, to which most photos "
        "of this index do not belong; to fit them"
    )
    never = [value for _, value in index_facts(described) if value.startswith("never judged")]
    assert len(never) == 2
    assert all("fitted on other data" in value for value in never)


def test_short_texts_have_a_line_of_their_own(
    index_folder: Path, make_calibration: Callable[..., Calibration]
) -> None:
    made = make_calibration("any", auroc=0.6)
    described = replace(describe(index_folder), calibration=made)
    facts = dict(index_facts(described))
    assert facts["  short texts"] == "not fitted; texts shorter than captions are not judged"
    short = ShortTexts(
        lengths=TextLengths(low=3, high=7),
        texts=1234,
        text_to_image=made.text_to_image,
        figures=make_calibration("any", auroc=0.9).figures.text_to_image,
    )
    facts = dict(index_facts(replace(described, calibration=replace(made, short_texts=short))))
    assert facts["  short texts"].startswith("1,234 of 3 to 7 tokens; ECE 0.020 of hits")
    assert "AUROC of any match 0.900" in facts["  short texts"]
    assert facts["  text to image"].startswith("never judged")


def test_index_build_says_it_in_one_line(
    tiny_checkpoint: Path,
    data_file: Path,
    tmp_path: Path,
    make_calibration: Callable[..., Calibration],
) -> None:
    checkpoint = Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))
    made = make_calibration(read_model_id(checkpoint))
    fitted_on = replace(made.fitted_on, photo_sample=sample_photos(["elsewhere.jpg"]))
    write_calibration(checkpoint, replace(made, fitted_on=fitted_on))
    words = ["index", "build", "--model", checkpoint, "--images", data_file]
    built = CliRunner().invoke(app, [*map(str, words), "--out", str(tmp_path / "index")])
    assert built.exit_code == 0, built.stderr
    said = [line for line in built.stderr.splitlines() if "probabilities" in line]
    assert len(said) == 1
    assert "none of them is in this index" in said[0]


@pytest.mark.parametrize(
    # Of 6 photos and 12 texts.
    ("photos", "warned"),
    [(40, []), (60, []), (61, ["images"]), (121, ["images", "texts"]), (1, ["texts"])],
)
def test_far_more_or_fewer_items_than_it_was_fitted_among_are_warned_of(
    index_folder: Path,
    make_calibration: Callable[..., Calibration],
    photos: int,
    warned: list[str],
) -> None:
    described = replace(describe(index_folder), calibration=make_calibration("any", photos))
    warnings = calibration_warnings(described)
    assert len(warnings) == len(warned)
    evidence = "weaker" if photos == 1 else "stronger"
    for warning, target in zip(warnings, warned, strict=True):
        assert warning.startswith(f"probabilities were fitted among {photos:,} {target}, this")
        assert f"the same score gap is {evidence} evidence here" in warning


def test_warnings_go_to_stderr(
    index_folder: Path, tmp_path: Path, make_calibration: Callable[..., Calibration]
) -> None:
    root = Path(shutil.copytree(index_folder, tmp_path / "index"))
    store_calibration(root, make_calibration(describe(root).model_id, 61))
    assert info(root).stderr.startswith(
        "warning: probabilities were fitted among 61 images, this index has 6; the"
    )
