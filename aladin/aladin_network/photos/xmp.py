"""XMP of a photo: a packet inside of its file, or the file ``.xmp`` beside it.

It is RDF in XML, and untrusted: a packet of more than 4 MiB, and one with a document type (which
could define entities), is refused; nothing that it refers to is read.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from aladin_network.photos.dates import Moment, moment_of
from aladin_network.photos.fields import (
    DESCRIPTION,
    KEYWORDS,
    PEOPLE,
    PLACE,
    TITLE,
    Details,
    MomentKind,
    Told,
    list_details,
    place_details,
    rating_details,
    text_details,
)

MOST_XMP_BYTES = 4 * 2**20

_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_DC = "{http://purl.org/dc/elements/1.1/}"
_XMP = "{http://ns.adobe.com/xap/1.0/}"
_EXIF, _TIFF = "{http://ns.adobe.com/exif/1.0/}", "{http://ns.adobe.com/tiff/1.0/}"
_PHOTOSHOP = "{http://ns.adobe.com/photoshop/1.0/}"
_IPTC = "{http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/}"
_IPTC_EXT = "{http://iptc.org/std/Iptc4xmpExt/2008-02-29/}"
_REGIONS = "{http://www.metadataworkinggroup.com/schemas/regions/}"
# Windows writes the first one, other programs also the second one.
_MICROSOFT = ("{http://ns.microsoft.com/photo/1.0/}", "{http://ns.microsoft.com/photo/1.0}")
_MICROSOFT_REGIONS = "{http://ns.microsoft.com/photo/1.2/t/Region#}"

# Where each field is found, the first that has a text first.
_TEXTS = {
    TITLE: (f"{_DC}title", f"{_PHOTOSHOP}Headline"),
    DESCRIPTION: (
        *(f"{_DC}description", f"{_TIFF}ImageDescription"),
        f"{_IPTC}AltTextAccessibility",
    ),
}
# The names of a place, the smallest first.
_PLACES = (f"{_IPTC}Location", f"{_PHOTOSHOP}City", f"{_PHOTOSHOP}State", f"{_PHOTOSHOP}Country")
# Keywords with the signs that separate the levels of a hierarchy: each level is a keyword.
_KEYWORDS = {
    f"{_DC}subject": "",
    "{http://ns.adobe.com/lightroom/1.0/}hierarchicalSubject": "|",
    "{http://www.digikam.org/ns/1.0/}TagsList": "/",
    **{f"{namespace}LastKeywordXMP": "/" for namespace in _MICROSOFT},
}
_TIMES: dict[MomentKind, tuple[str, ...]] = {
    "taken": (f"{_EXIF}DateTimeOriginal", f"{_PHOTOSHOP}DateCreated"),
    "digitised": (f"{_EXIF}DateTimeDigitized", f"{_XMP}CreateDate"),
}
# "46,56.88N", "46,56,52.8N"
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)(?:,(\d+(?:\.\d+)?))?(?:,(\d+(?:\.\d+)?))?([NSEW])")
_BY_MARK = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, which begins alike
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def xmp_told(packet: bytes) -> Told:
    """Return what an XMP packet tells.

    Raises:
        ValueError: If it is no XMP, or none that is read here; the message says why.
    """
    properties = _Properties(_parsed(packet))
    details = {
        **{k: v for name, tags in _TEXTS.items() for k, v in properties.text(name, tags).items()},
        **list_details(KEYWORDS, properties.keywords()),
        **list_details(PEOPLE, properties.people()),
        **list_details(PLACE, [each for tag in _PLACES for each in properties.values(tag)[:1]]),
        **rating_details(
            properties.first(f"{_XMP}Rating"),
            properties.first(*(f"{namespace}Rating" for namespace in _MICROSOFT)),
        ),
        **place_details(
            _degrees(properties.first(f"{_EXIF}GPSLatitude")),
            _degrees(properties.first(f"{_EXIF}GPSLongitude")),
        ),
    }
    moments: dict[MomentKind, Moment] = {}
    for kind, tags in _TIMES.items():
        found = (moment_of(text, "xmp") for tag in tags for text in properties.values(tag))
        moment = next(filter(None, found), None)
        if moment is not None:
            moments[kind] = moment
    return Told(details, moments)


def _parsed(packet: bytes) -> ElementTree.Element:
    if len(packet) > MOST_XMP_BYTES:
        raise ValueError(f"{len(packet)} bytes, at most {MOST_XMP_BYTES} are read")
    encoding = next((name for mark, name in _BY_MARK if packet.startswith(mark)), "utf-8")
    text = packet.decode(encoding).strip("\0 \r\n\t\ufeff")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("XMP with a document type, which is not read")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"not XML ({error})") from None


class _Properties:
    """The properties of a photo in a packet, by the tag with its namespace."""

    def __init__(self, root: ElementTree.Element) -> None:
        self._root = root
        self._about = [
            each
            for rdf in root.iter(f"{_RDF}RDF")
            for each in rdf
            if each.tag == f"{_RDF}Description"
        ]

    def values(self, tag: str) -> list[str]:
        """Return the texts of a property, of several languages the default or first one."""
        found: list[str] = []
        for description in self._about:
            if tag in description.attrib:
                found.append(description.attrib[tag])
            for each in description.findall(tag):
                found += _texts_of(each)
        return [text for text in found if text.strip()]

    def first(self, *tags: str) -> str | None:
        return next((text for tag in tags for text in self.values(tag)), None)

    def text(self, name: str, tags: tuple[str, ...]) -> Details:
        return text_details(name, (text for tag in tags for text in self.values(tag)))

    def keywords(self) -> Iterator[str]:
        for tag, separator in _KEYWORDS.items():
            for keyword in self.values(tag):
                yield from keyword.split(separator) if separator else [keyword]

    def people(self) -> Iterator[str]:
        """Yield the names of people, by themselves and of regions that are marked in the photo."""
        yield from self.values(f"{_IPTC_EXT}PersonInImage")
        for each in self._root.iter(f"{_IPTC_EXT}PersonName"):
            yield from _texts_of(each)
        for each in self._root.iter():
            name = _member(each, f"{_REGIONS}Name")
            if name is not None and _member(each, f"{_REGIONS}Type") in (None, "Face"):
                yield name
            name = _member(each, f"{_MICROSOFT_REGIONS}PersonDisplayName")
            if name is not None:
                yield name


def _texts_of(element: ElementTree.Element) -> list[str]:
    """Return the texts of a property: its own, those of a list, or one of several languages."""
    for kind in ("Bag", "Seq", "Alt"):
        values = element.find(f"{_RDF}{kind}")
        if values is not None:
            listed = values.findall(f"{_RDF}li")
            if kind == "Alt":
                listed.sort(key=lambda each: each.get(_LANGUAGE) != "x-default")
            texts = [each.findtext(f"{_RDF}value") or each.text or "" for each in listed]
            return [text for text in texts if text.strip()][: 1 if kind == "Alt" else None]
    return [element.findtext(f"{_RDF}value") or element.text or ""]


def _member(element: ElementTree.Element, tag: str) -> str | None:
    """Return a member of a structure, which is written as an attribute or an element."""
    return element.get(tag) or element.findtext(tag) or None


def _degrees(text: str | None) -> float | None:
    match = _DEGREES.fullmatch((text or "").strip())
    if match is None:
        return None
    *parts, side = match.groups()
    degrees = sum(float(part or 0) / 60**power for power, part in enumerate(parts))
    return -degrees if side in "SW" else degrees
