"""The command line and the printed figures of the benchmarks."""

from __future__ import annotations

import json

import pytest

from benchmarks.lib.output import (
    figures_parser,
    median_and_most,
    print_figures,
    print_rows,
)

_FIGURES = {"queries": 7, "saturation_ratio": 0.85649, "rates": [1.0, 2.0], "index": "made"}


def test_json_holds_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    print_figures(_FIGURES, as_json=True)

    assert json.loads(capsys.readouterr().out) == _FIGURES


def test_a_table_holds_a_line_for_each_single_value(capsys: pytest.CaptureFixture[str]) -> None:
    print_figures(_FIGURES, as_json=False)

    assert capsys.readouterr().out.splitlines() == [
        "queries           7",
        "saturation_ratio  0.856",
        "index             made",
    ]


def test_options_that_all_have() -> None:
    parser = figures_parser("Measures.", "some seconds")

    options = parser.parse_args(["--json", "--quick"])

    assert (options.json, options.quick) == (True, True)
    assert (parser.parse_args([]).json, parser.parse_args([]).quick) == (False, False)


def test_a_benchmark_without_a_quick_form_has_no_such_option() -> None:
    with pytest.raises(SystemExit):
        figures_parser("Measures.").parse_args(["--quick"])


def test_rows_are_a_markdown_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["engine", "ms", "ratio"], [["ours", 1, "0.5"], ["theirs", 2, "1.0"]])

    assert capsys.readouterr().out.splitlines() == [
        "| engine | ms | ratio |",
        "| --- | ---: | ---: |",
        "| ours | 1 | 0.5 |",
        "| theirs | 2 | 1.0 |",
    ]


def test_median_and_most() -> None:
    assert median_and_most([1.0, 9.04, 2.0]) == [2.0, 9.0]
    assert median_and_most([]) == []
