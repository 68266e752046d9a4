"""URLs that are fetched from, and those that are refused before anything is asked."""

from __future__ import annotations

import pytest

from aladin_service.photos.photo_url import ImageUrlRefusedError, parse_photo_url

HOSTS = ("photos.example.com", "*.cdn.example.org", "203.0.113.5", "bücher.example")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://photos.example.com/a.jpg", ("https", "photos.example.com", 443, "/a.jpg")),
        ("http://photos.example.com", ("http", "photos.example.com", 80, "/")),
        ("HTTP://PHOTOS.Example.COM./A?b=c#d", ("http", "photos.example.com", 80, "/A?b=c")),
        ("http://photos.example.com:443/a", ("http", "photos.example.com", 443, "/a")),
        ("https://a.b.cdn.example.org/é%20x", ("https", "a.b.cdn.example.org", 443, "/%C3%A9%20x")),
        ("https://bücher.example/", ("https", "xn--bcher-kva.example", 443, "/")),
    ],
)
def test_listed_hosts(url: str, expected: tuple[object, ...]) -> None:
    hosts = (*HOSTS, "xn--bcher-kva.example")
    assert parse_photo_url(url, hosts) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "photos.example.com/a.jpg",
        "//photos.example.com/a.jpg",
        "file:///etc/passwd",
        "ftp://photos.example.com/a.jpg",
        "gopher://photos.example.com/a",
        "data:image/png;base64,AAAA",
        "http://",
        "http:///a",
        "http://example.com/",
        "http://cdn.example.org/",  # the names under it are listed, not itself
        "http://evilcdn.example.org/",
        "http://photos.example.com.evil.test/",
        "http://evil.test/photos.example.com",
        "http://evil.test#@photos.example.com/",
        "http://photos.example.com@evil.test/",
        "http://user@photos.example.com/",
        "http://user:pass@photos.example.com/",
        "http://@photos.example.com/",
        "http://photos.example.com:8080/",
        "http://photos.example.com:22/",
        "http://photos.example.com:0/",
        "http://photos.example.com:99999/",
        "http://photos.example.com:port/",
        "http://photos.example.com\\@evil.test/",
        "http://photos.example.com /",
        "http://photos.example.com/\r\nX: 1",
        "http://photos.example.com/a\tb",
        "http://photos.example.com\0.evil.test/",
        "http://photos..example.com/",
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::1",
        "http://localhost/",
        "http://photos.example.com/" + "a" * 2000,
    ],
)
def test_all_others_are_refused(url: str) -> None:
    with pytest.raises(ImageUrlRefusedError, match=r"^image_url: "):
        parse_photo_url(url, HOSTS)


def test_without_hosts_nothing_is_fetched() -> None:
    with pytest.raises(ImageUrlRefusedError, match="does not fetch photos"):
        parse_photo_url("https://photos.example.com/a.jpg", ())


def test_a_redirect_is_checked_like_the_first_url() -> None:
    url = parse_photo_url("https://photos.example.com/a/b.jpg?c", HOSTS)
    assert str(url.after_redirect("../d.jpg", HOSTS)) == "https://photos.example.com:443/d.jpg"
    assert url.after_redirect("//x.cdn.example.org/e", HOSTS).host == "x.cdn.example.org"
    for location in ("http://127.0.0.1/", "//evil.test/", "file:///etc/passwd", "http://a b/"):
        with pytest.raises(ImageUrlRefusedError):
            url.after_redirect(location, HOSTS)


@pytest.mark.parametrize("location", ["//[", "http://[::1", "http://\u2100.com"])
def test_a_redirect_to_what_is_no_url(location: str) -> None:
    url = parse_photo_url("http://photos.example.com/a", HOSTS)
    with pytest.raises(ImageUrlRefusedError, match="redirected to an invalid URL"):
        url.after_redirect(location, HOSTS)
