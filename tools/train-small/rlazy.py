"""Reads an R lazy-load database (NAME.rdx, NAME.rdb), the form in which the R data packages keep their texts."""

from __future__ import annotations

import bz2
import lzma
import warnings
import zlib
from pathlib import Path
from typing import Any

import rdata


def decompress(block: bytes) -> bytes:
    """A database entry: four bytes of length, then zlib data, or a letter and bzip2 ('2') or LZMA ('Z') data."""
    kind = block[4:5]
    if kind == b"2":
        return bz2.decompress(block[5:])
    if kind == b"Z":
        try:
            filters = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME}]
            return lzma.decompress(block[5:], format=lzma.FORMAT_RAW, filters=filters)
        except lzma.LZMAError:
            return lzma.decompress(block[5:])
    return zlib.decompress(block[4:])


def convert(raw: bytes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rdata warns about every attribute that it does not know
        return rdata.conversion.convert(rdata.parser.parse_data(raw))


def load(base: Path) -> dict[str, Any]:
    """Every variable of the database BASE.rdx / BASE.rdb."""
    index = convert(zlib.decompress(base.with_suffix(".rdx").read_bytes(), 47))
    data = base.with_suffix(".rdb").read_bytes()
    return {
        name: convert(decompress(data[int(start) : int(start) + int(length)]))
        for name, (start, length) in index["variables"].items()
    }
