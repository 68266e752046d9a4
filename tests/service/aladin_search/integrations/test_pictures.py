"""Photos in the forms that other libraries hand around."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from aladin_network.errors import ImageError, ImageTooLargeError, InputError
from aladin_network.photos import decoding
from aladin_search.integrations import pictures
from aladin_search.integrations.pictures import picture_of


def pixels(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (6, 9, 3), dtype=np.uint8)


def png(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def site() -> Iterator[str]:
    """A server: ``/photo.png``, ``/moved.png`` (a redirect to it) and ``/none.png`` (404)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/moved.png":
                self.send_response(302)
                self.send_header("Location", "/photo.png")
                self.end_headers()
            elif self.path == "/photo.png":
                self.send_response(200)
                self.end_headers()
                self.wfile.write(png(pixels()))
            else:
                self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_form_gives_the_same_pixels(tmp_path: Path, site: str) -> None:
    values = pixels()
    file = tmp_path / "a.png"
    file.write_bytes(png(values))
    url = "data:image/png;base64," + base64.b64encode(png(values)).decode()
    forms = [
        Image.fromarray(values),
        values,
        values.transpose(2, 0, 1),
        torch.from_numpy(values),
        file,
        str(file),
        url,
        {"image": values},
        f"{site}/photo.png",
        f"{site}/moved.png",
    ]
    for form in forms:
        picture = picture_of(form)
        assert picture.mode == "RGB"
        np.testing.assert_array_equal(np.asarray(picture), values)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_an_opened_picture_is_what_its_file_is(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = tmp_path / "a.png"
    Image.fromarray(pixels()).save(file, exif=exif)
    with Image.open(file) as opened:
        np.testing.assert_array_equal(np.asarray(picture_of(opened)), np.asarray(picture_of(file)))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "CMYK", "I;16"])
def test_other_modes_become_rgb_as_in_a_file(tmp_path: Path, mode: str) -> None:
    picture = (
        Image.fromarray(pixels()[..., 0].astype(np.uint16) * 256)
        if mode == "I;16"
        else Image.fromarray(pixels()).convert(mode)
    )
    if mode in ("RGBA", "LA"):
        picture.putalpha(Image.fromarray(pixels(2)[..., 0]))
    file = tmp_path / ("a.tiff" if mode == "CMYK" else "a.png")
    picture.save(file)
    np.testing.assert_array_equal(np.asarray(picture_of(picture)), np.asarray(picture_of(file)))


def test_the_given_picture_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    Image.fromarray(pixels()).save(file, dpi=(72, 72))
    with Image.open(file) as opened:
        picture_of(opened)
        picture_of(opened)
        assert "dpi" in opened.info
        np.testing.assert_array_equal(np.asarray(opened), pixels())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (7, "expected a PIL image, a uint8 array, a path, a URL or a data URL, got int"),
        (np.zeros((4, 4, 3)), r"got float64 with the shape \(4, 4, 3\)"),
        (np.zeros((4, 4), np.uint8), r"got uint8 with the shape \(4, 4\)"),
        ("data:image/png,abc", "expected a data URL in base64"),
        ("data:image/png;base64,!!!", "invalid base64"),
    ],
)
def test_what_is_no_photo_is_refused(value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        picture_of(value)


def test_missing_and_damaged_photos(tmp_path: Path, site: str) -> None:
    with pytest.raises(ImageError, match=r"none\.png"):
        picture_of(tmp_path / "none.png")
    with pytest.raises(InputError, match=r"none\.png' cannot be fetched \(.*404"):
        picture_of(f"{site}/none.png")
    with pytest.raises(ImageError, match="not an image"):
        picture_of("data:image/png;base64," + base64.b64encode(b"nothing").decode())


def test_a_url_may_not_send_more_than_a_photo_may_have(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "DEFAULT_LIMITS", decoding.ImageLimits(max_bytes=10))
    with pytest.raises(ImageTooLargeError, match="more than 10 bytes"):
        picture_of(f"{site}/photo.png")
