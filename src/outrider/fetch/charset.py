"""Bytes → text as browsers do it: the page's word is heard, and only codecs of this table are used.

Whatever the bytes are, there is a text: what cannot be decoded becomes U+FFFD.
"""

from __future__ import annotations

import re
from typing import Final

UTF_8: Final = "utf-8"
FALLBACK: Final = "windows-1252"
LOOKED_AT: Final = 1024  # bytes in which a page may name its charset

_BOMS: Final = ((b"\xef\xbb\xbf", UTF_8), (b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le"))
_BOM_STARTS: Final = frozenset(bom[:1] for bom, _ in _BOMS)

# Python's codec → the labels of the WHATWG Encoding Standard. What is absent is never used: a page
# cannot ask for utf-7, for zlib, or for a codec that takes quadratic time.
_LABELS: Final = {
    UTF_8: "utf-8 utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
    FALLBACK: "windows-1252 cp1252 x-cp1252 ascii us-ascii ansi_x3.4-1968 iso-8859-1 iso8859-1 "
    "iso88591 iso_8859-1 iso_8859-1:1987 iso-ir-100 latin1 latin-1 l1 csisolatin1 cp819 ibm819 "
    "x-user-defined",
    "windows-1250": "windows-1250 cp1250 x-cp1250",
    "windows-1251": "windows-1251 cp1251 x-cp1251",
    "windows-1253": "windows-1253 cp1253 x-cp1253",
    "windows-1254": "windows-1254 cp1254 x-cp1254 iso-8859-9 iso8859-9 iso88599 iso_8859-9 latin5 "
    "l5 csisolatin5 iso-ir-148",
    "windows-1255": "windows-1255 cp1255 x-cp1255",
    "windows-1256": "windows-1256 cp1256 x-cp1256",
    "windows-1257": "windows-1257 cp1257 x-cp1257",
    "windows-1258": "windows-1258 cp1258 x-cp1258",
    "cp874": "windows-874 dos-874 iso-8859-11 iso8859-11 iso885911 tis-620",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "iso-8859-2 iso8859-2 iso88592 iso_8859-2 latin2 l2 csisolatin2 iso-ir-101",
    "iso8859-3": "iso-8859-3 iso8859-3 iso88593 iso_8859-3 latin3 l3 csisolatin3 iso-ir-109",
    "iso8859-4": "iso-8859-4 iso8859-4 iso88594 iso_8859-4 latin4 l4 csisolatin4 iso-ir-110",
    "iso8859-5": "iso-8859-5 iso8859-5 iso88595 iso_8859-5 cyrillic csisolatincyrillic iso-ir-144",
    "iso8859-6": "iso-8859-6 iso8859-6 iso88596 iso_8859-6 arabic csisolatinarabic ecma-114 "
    "asmo-708 iso-8859-6-e iso-8859-6-i",
    "iso8859-7": "iso-8859-7 iso8859-7 iso88597 iso_8859-7 greek greek8 csisolatingreek ecma-118 "
    "elot_928 sun_eu_greek",
    "iso8859-8": "iso-8859-8 iso8859-8 iso88598 iso_8859-8 hebrew csisolatinhebrew visual "
    "iso-8859-8-e iso-8859-8-i csiso88598e csiso88598i logical",
    "iso8859-10": "iso-8859-10 iso8859-10 iso885910 latin6 l6 csisolatin6 iso-ir-157",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "iso-8859-15 iso8859-15 iso885915 iso_8859-15 latin9 l9 csisolatin9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "koi koi8 koi8-r koi8_r cskoi8r",
    "koi8-u": "koi8-u koi8-ru",
    "mac-roman": "macintosh mac csmacintosh x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "gb18030 gbk gb2312 gb_2312 gb_2312-80 chinese csgb2312 csiso58gb231280 iso-ir-58 "
    "x-gbk",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "euc-jp x-euc-jp cseucpkdfmtjapanese",
    "iso2022_jp": "iso-2022-jp csiso2022jp",
    "cp932": "shift_jis shift-jis sjis x-sjis ms932 ms_kanji windows-31j csshiftjis",
    "cp949": "euc-kr cseuckr korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949 "
    "csksc56011987 iso-ir-149",
    "utf-16-be": "utf-16be unicodefffe",
    "utf-16-le": "utf-16 utf-16le unicode unicodefeff ucs-2 iso-10646-ucs-2 csunicode",
}
_CODECS: Final = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}

# Possessive, so that no run of blanks is read twice: it takes linear time.
_IN_HEADER: Final = re.compile(r"charset\s*+=\s*+[\"']?+\s*+([^\s\"';,]++)", re.IGNORECASE).search
# A comment is passed over whole, so that what it says is not heard. Run over LOOKED_AT bytes only:
# it takes quadratic time for tags that begin again and again.
_IN_PAGE: Final = re.compile(
    rb"<!--.*?(?:-->|\Z)"
    rb"|<meta[\s/][^>]*?charset\s*+=\s*+[\"']?+\s*+([^\s\"';/>]++)"
    rb"|<\?xml\s[^>]*?encoding\s*+=\s*+[\"']([^\"'>]++)",
    re.IGNORECASE | re.DOTALL,
).finditer


def charset_of(body: bytes, content_type: str | None) -> str:
    """The codec a body is read with: BOM, then header, then the page's own word, then a guess."""
    bom, codec = _bom(body)
    if bom:
        return codec
    named = _in_header(content_type) or _in_page(body[:LOOKED_AT])
    return named or (UTF_8 if _is_utf_8(body) else FALLBACK)


def decoded(body: bytes, codec: str) -> str:
    """The text, less its byte order mark; never raises."""
    return without_bom(body).decode(codec, "replace")


def without_bom(body: bytes) -> bytes:
    """The bytes after the byte order mark, if there is one."""
    bom, _ = _bom(body)
    return body[len(bom) :] if bom else body


def _bom(body: bytes) -> tuple[bytes, str]:
    if body[:1] in _BOM_STARTS:
        for bom, codec in _BOMS:
            if body.startswith(bom):
                return bom, codec
    return b"", ""


def _in_header(content_type: str | None) -> str | None:
    found = _IN_HEADER(content_type) if content_type else None
    return None if found is None else _CODECS.get(found[1].lower())


def _in_page(head: bytes) -> str | None:
    for found in _IN_PAGE(head):
        label = found[1] or found[2]
        if label is None:
            continue
        codec = _CODECS.get(label.strip().lower().decode("ascii", "replace"))
        # Bytes in which the word `charset` could be read are not UTF-16, whatever it says.
        if codec is not None:
            return UTF_8 if codec.startswith("utf-16") else codec
    return None


def _is_utf_8(body: bytes) -> bool:
    try:
        return body.isascii() or bool(body.decode())
    except UnicodeDecodeError:
        return False
