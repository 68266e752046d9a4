"""What the owner of a photo has written in its file: by EXIF, IPTC and XMP, in every format."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from PIL import ExifTags, Image, PngImagePlugin, TiffImagePlugin

from aladin_network.photos.decoding import decoded_image, read_details
from aladin_network.photos.memory import DecodingMemory
from aladin_network.photos.xmp import xmp_told
from tests.aladin.pictures import encode, turned

BASE = ExifTags.Base
NAMESPACES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
    "xmp": "http://ns.adobe.com/xap/1.0/",
    "lr": "http://ns.adobe.com/lightroom/1.0/",
    "exif": "http://ns.adobe.com/exif/1.0/",
    "photoshop": "http://ns.adobe.com/photoshop/1.0/",
    "digiKam": "http://www.digikam.org/ns/1.0/",
    "MicrosoftPhoto": "http://ns.microsoft.com/photo/1.0/",
    "MP": "http://ns.microsoft.com/photo/1.2/",
    "MPRI": "http://ns.microsoft.com/photo/1.2/t/RegionInfo#",
    "MPReg": "http://ns.microsoft.com/photo/1.2/t/Region#",
    "mwg-rs": "http://www.metadataworkinggroup.com/schemas/regions/",
    "Iptc4xmpExt": "http://iptc.org/std/Iptc4xmpExt/2008-02-29/",
    "Iptc4xmpCore": "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
}


def packet(body: str, attributes: str = "") -> bytes:
    """An XMP packet with these properties."""
    spaces = " ".join(f'xmlns:{name}="{uri}"' for name, uri in NAMESPACES.items())
    return (
        "<?xpacket begin='\ufeff' id='W5M0MpCehiHzreSzNTczkc9d'?>"
        f"<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF {spaces}>"
        f"<rdf:Description rdf:about='' {attributes}>{body}</rdf:Description>"
        f"</rdf:RDF></x:xmpmeta>{' ' * 40}<?xpacket end='w'?>"
    ).encode()


def alt(tag: str, *texts: tuple[str, str]) -> str:
    listed = "".join(f"<rdf:li xml:lang='{lang}'>{text}</rdf:li>" for lang, text in texts)
    return f"<{tag}><rdf:Alt>{listed}</rdf:Alt></{tag}>"


def bag(tag: str, *texts: str) -> str:
    listed = "".join(f"<rdf:li>{text}</rdf:li>" for text in texts)
    return f"<{tag}><rdf:Bag>{listed}</rdf:Bag></{tag}>"


def iptc(*values: tuple[int, str | bytes]) -> bytes:
    """A segment of a JPEG with IPTC's records, as Photoshop writes it."""
    records = b""
    for number, value in values:
        raw = value.encode() if isinstance(value, str) else value
        records += struct.pack(">BBBH", 0x1C, 2, number, len(raw)) + raw
    block = b"8BIM" + struct.pack(">HHI", 0x0404, 0, len(records)) + records
    content = b"Photoshop 3.0\0" + block + b"\0" * (len(records) % 2)
    return struct.pack(">HH", 0xFFED, len(content) + 2) + content


def jpeg(xmp: bytes | None = None, segment: bytes = b"", exif: Image.Exif | None = None) -> bytes:
    options: dict[str, Any] = {} if xmp is None else {"xmp": xmp}
    if exif is not None:
        options["exif"] = exif.tobytes()
    data = encode(Image.new("RGB", (8, 8)), "JPEG", **options)
    return data[:2] + segment + data[2:]


def told(data: bytes) -> dict[str, Any]:
    """What is stored with a photo, which reading without decoding has to find, too."""
    with decoded_image(data, DecodingMemory()) as photo:
        assert read_details(data, "photo") == photo.metadata
        return dict(photo.metadata)


def told_by_xmp(body: str, attributes: str = "") -> dict[str, Any]:
    return told(jpeg(packet(body, attributes)))


FULL = packet(
    alt("dc:title", ("de-DE", "Berge"), ("x-default", "Mountains é"))
    + bag("dc:subject", "Alps", "snow"),
    "xmp:Rating='5'",
)
WORDS = {"title": "Mountains é", "keywords": ["Alps", "snow"], "rating": 5}


def in_format(kind: str) -> bytes:
    picture = Image.new("RGB", (64, 64))
    if kind == "PNG":
        info = PngImagePlugin.PngInfo()
        info.add_itxt("XML:com.adobe.xmp", FULL.decode())
        return encode(picture, kind, pnginfo=info, exif=turned(1))  # without it all is decoded
    if kind == "TIFF":
        tags = TiffImagePlugin.ImageFileDirectory_v2()
        tags.tagtype[700] = 1
        tags[700] = FULL
        return encode(picture, kind, tiffinfo=tags)
    return encode(picture, kind, xmp=FULL)


@pytest.mark.parametrize(
    "kind",
    ["JPEG", "PNG", "TIFF", "WEBP", "AVIF", "HEIF"],
)
def test_every_format_carries_xmp(kind: str) -> None:
    assert told(in_format(kind)) == WORDS


def test_a_png_tells_it_after_its_pixels_too() -> None:
    data = in_format("PNG")
    start = data.index(b"iTXt") - 4
    (length,) = struct.unpack_from(">I", data, start)
    chunk = data[start : start + 12 + length]
    end = data.index(b"IEND") - 4
    moved = data[:start] + data[start + len(chunk) : end] + chunk + data[end:]
    assert told(moved) == WORDS


PERSON = "<rdf:li rdf:parseType='Resource'><mwg-rs:Name>{}</mwg-rs:Name>{}</rdf:li>"


@pytest.mark.parametrize(
    ("body", "attributes", "expected"),
    [
        # A title by attribute; the first language without a default; headline and alt text last.
        (alt("dc:title", ("fr", "Lac"), ("de", "See")), "", {"title": "Lac"}),
        ("", "photoshop:Headline=' Lake \n two '", {"title": "Lake two"}),
        (
            alt("dc:title", ("x-default", " "))
            + "<photoshop:Headline>L &amp; M</photoshop:Headline>",
            "",
            {"title": "L & M"},
        ),
        *(
            (alt(tag, ("x-default", "A lake")), "", {"description": "A lake"})
            for tag in ("dc:description", "Iptc4xmpCore:AltTextAccessibility")
        ),
        # Each level of a hierarchy, each keyword once.
        (
            bag("dc:subject", "Bern", "snow")
            + bag("lr:hierarchicalSubject", "Places|Switzerland|Bern", "snow|Powder")
            + bag("digiKam:TagsList", "Places/Italy").replace("Bag", "Seq"),
            "",
            {"keywords": ["Bern", "snow", "Places", "Switzerland", "Powder", "Italy"]},
        ),
        (bag("dc:subject", "Dog", "dog", " ", "DOG "), "", {"keywords": ["Dog"]}),
        # People: by name, of regions in three forms; what is no face is nobody.
        (bag("Iptc4xmpExt:PersonInImage", "Anna", "Bo"), "", {"people": ["Anna", "Bo"]}),
        (
            "<mwg-rs:Regions rdf:parseType='Resource'><mwg-rs:RegionList><rdf:Bag>"
            + PERSON.format("Eve", "<mwg-rs:Type>Face</mwg-rs:Type>")
            + PERSON.format("Rex", "<mwg-rs:Type>Pet</mwg-rs:Type>")
            + "<rdf:li><rdf:Description mwg-rs:Name='Kim' mwg-rs:Type='Face'/></rdf:li>"
            + "</rdf:Bag></mwg-rs:RegionList></mwg-rs:Regions>",
            "",
            {"people": ["Eve", "Kim"]},
        ),
        (
            "<MP:RegionInfo rdf:parseType='Resource'><MPRI:Regions><rdf:Bag>"
            "<rdf:li MPReg:PersonDisplayName='Lee'/></rdf:Bag></MPRI:Regions></MP:RegionInfo>",
            "",
            {"people": ["Lee"]},
        ),
        # Ratings: rejected, none, in halves, out of range, none; in percent.
        *(
            ("", f"xmp:Rating='{rating}'", told)
            for rating, told in (
                *(("-1", {"rating": -1}), ("0", {"rating": 0}), ("4.0", {"rating": 4})),
                *(("6", {}), ("nan", {}), ("x", {})),
            )
        ),
        *(
            ("", f"MicrosoftPhoto:Rating='{share}'", {"rating": stars})
            for share, stars in ((0, 0), (1, 1), (25, 2), (50, 3), (75, 4), (99, 5))
        ),
        # Places.
        (
            "",
            "photoshop:City='Bern' photoshop:Country='Schweiz' Iptc4xmpCore:Location='Altstadt'",
            {"place": ["Altstadt", "Bern", "Schweiz"]},
        ),
        (
            "",
            "exif:GPSLatitude='46,56.88N' exif:GPSLongitude='7,26,30W'",
            {"lat": 46.948, "lon": -7.441667},
        ),
        ("", "exif:GPSLatitude='46,56.88N'", {}),
        # Dates.
        (
            "",
            "exif:DateTimeOriginal='2022-07-14T10:11:12.34+02:00' xmp:CreateDate='2023-01-01'",
            {"taken_at": "2022-07-14T10:11:12", "utc_offset": "+02:00", "date_source": "xmp"},
        ),
        (
            "",
            "photoshop:DateCreated='1985-06-30'",
            {"taken_at": "1985-06-30", "date_source": "xmp"},
        ),
        ("", "photoshop:DateCreated='1985'", {}),
    ],
)
def test_properties_of_xmp(body: str, attributes: str, expected: dict[str, Any]) -> None:
    assert told_by_xmp(body, attributes) == expected


def test_records_of_iptc() -> None:
    data = jpeg(
        segment=iptc(
            (5, "Fête"),
            (120, "Latin-1: é".encode("latin-1")),
            *((25, word) for word in ("one", "two", "One")),
            *((55, "20190102"), (60, "030405-0330")),
            *((90, "Bern"), (101, "Schweiz")),
        )
    )
    assert told(data) == {
        "title": "Fête",
        "description": "Latin-1: é",
        "keywords": ["one", "two"],
        "place": ["Bern", "Schweiz"],
        "taken_at": "2019-01-02T03:04:05",
        "utc_offset": "-03:30",
        "date_source": "iptc",
    }


def windows_exif() -> Image.Exif:
    exif = Image.Exif()
    exif[BASE.ImageDescription] = "of exif"
    exif[BASE.Rating] = 2
    for tag, text in ((BASE.XPTitle, "Titel ß"), (BASE.XPKeywords, "a;b; a")):
        exif[tag] = text.encode("utf-16-le") + b"\0\0"
    return exif


def test_tags_of_exif() -> None:
    words = {"title": "Titel ß", "description": "of exif", "keywords": ["a", "b"]}
    assert told(jpeg(exif=windows_exif())) == words | {"rating": 2}


@pytest.mark.parametrize(
    "text", ["OLYMPUS DIGITAL CAMERA", "SONY DSC", "DCIM\\100MEDIA\\DJI_0001.JPG", "", "IMG_1.jpg"]
)
def test_what_a_camera_writes_into_every_photo_is_no_description(text: str) -> None:
    exif = Image.Exif()
    exif[BASE.ImageDescription] = text
    assert told(jpeg(exif=exif)) == {}


def test_xmp_counts_before_iptc_and_that_before_exif_field_by_field() -> None:
    records = iptc((5, "of iptc"), (120, "of iptc"), (25, "iptc"))
    of_xmp = packet(alt("dc:title", ("x-default", "of xmp")))
    words = {"title": "of xmp", "description": "of iptc", "keywords": ["iptc"]}
    assert told(jpeg(of_xmp, records, windows_exif())) == words | {"rating": 2}


@pytest.mark.parametrize(
    ("xmp", "segment", "taken", "expected"),
    [
        # Taken before digitised, whoever says it.
        ("xmp:CreateDate='2020-01-01T00:00:00'", b"", "1985:06:30 12:00:00", "1985-06-30T12:00:00"),
        # A day yields to a time.
        ("", iptc((55, "20190102")), "2019:01:02 03:04:05", "2019-01-02T03:04:05"),
        ("", iptc((55, "20190102")), "", "2019-01-02"),
        # One that is no time yields to one that is.
        ("exif:DateTimeOriginal='soon'", b"", "2019:01:02 03:04:05", "2019-01-02T03:04:05"),
    ],
)
def test_the_best_date_of_several_sources(
    xmp: str, segment: bytes, taken: str, expected: str
) -> None:
    exif = Image.Exif()
    exif.get_ifd(ExifTags.IFD.Exif)[BASE.DateTimeOriginal] = taken
    assert told(jpeg(packet("", xmp), segment, exif))["taken_at"] == expected


def test_long_texts_are_cut_and_many_keywords_are_fewer() -> None:
    body = alt("dc:description", ("x-default", "x" * 5000)) + bag("dc:subject", "y" * 300)
    found = told_by_xmp(body)
    assert (len(found["description"]), len(found["keywords"][0])) == (2000, 200)
    for word, kept in (("", 100), ("y" * 197, 20)):
        many = bag("dc:subject", *(f"{word}{number:03d}" for number in range(150)))
        assert len(told_by_xmp(many)["keywords"]) == kept


ENTITIES = "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;'>]>"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (ENTITIES.encode() + packet("&b;"), "document type"),
        (("\ufeff" + ENTITIES + packet("").decode()).encode("utf-16"), "document type"),
        (packet("").replace(b"</rdf:RDF>", b""), "not XML"),
        (b"", "not XML"),
        (b"\xff" * 100, "utf-8"),
        (b" " * (4 * 2**20 + 1), "at most 4194304 are read"),
    ],
)
def test_what_is_no_xmp_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        xmp_told(content)


def test_xmp_in_utf_16_and_of_a_hundred_thousand_levels() -> None:
    text = FULL.decode().replace("\ufeff", "")
    assert xmp_told(("\ufeff" + text).encode("utf-16")).details["title"] == "Mountains é"
    deep = "<a>" * 100_000 + "</a>" * 100_000
    assert xmp_told(packet(deep, "xmp:Rating='3'")).details == {"rating": 3}


def test_broken_metadata_do_not_spoil_the_others() -> None:
    cut = iptc((5, "whole"), (120, "x"))
    data = jpeg(FULL[:200], cut, windows_exif())
    assert told(data)["title"] == "whole"
    damaged = cut.replace(b"\x1c\x02\x78\x00\x01", b"\x1c\x02\x78\x70\x01")
    assert told(jpeg(None, damaged, windows_exif()))["rating"] == 2
