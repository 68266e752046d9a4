import pytest
import typer

from aladin_service.commands.options import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("8GiB", 8 * 2**30),
        ("1.5 GB", 1_500_000_000),
        (" 10KiB ", 10 * 1024),
        ("2TB", 2 * 10**12),
        ("7B", 7),
    ],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "8 gigs", "-1", "8GiBs", "1,5GB", "0", "0.4B"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected"):
        parse_bytes(text)
