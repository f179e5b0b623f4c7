"""ProteinNet's text format, read record by record."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from .backbone import Chain

NEEDED = ("[ID]", "[PRIMARY]", "[TERTIARY]", "[MASK]")
PICOMETRES = 100  # in one Angstrom

Lines = list[tuple[int, str]]  # line number, text
Record = dict[str, Lines]  # under each block's name, its header and then its lines


def read_proteinnet(path: str | os.PathLike) -> Iterator[Chain]:
    """The chains of a ProteinNet file, plain or .gz, one at a time; picometres become Angstrom, masked residues NaN.

    A group is a PDB entry: `40#1ABC_1_A` is in group 1ABC.
    """
    for record in _records(path):
        yield _chain(record, path)


def is_proteinnet(path: str | os.PathLike) -> bool:
    """Whether the first line that is not blank says [ID]."""
    try:
        return next((text for _, text in _lines(path) if text), "") == "[ID]"
    except ValueError:
        return False


def _lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    number = 0
    with gzip.open(path, "rt", encoding="utf-8") if Path(path).suffix == ".gz" else open(path, encoding="utf-8") as f:
        try:
            for number, text in enumerate(f, 1):
                yield number, text.strip()
        except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}, after line {number}: asked for ProteinNet text, plain or .gz, got {error}.") from error


def _records(path: str | os.PathLike) -> Iterator[Record]:
    """A record ends at a blank line, at the next [ID] or at the end of the file."""
    record, block = {}, None
    for number, text in _lines(path):
        if record and text in ("", "[ID]"):
            yield record
            record, block = {}, None
        if text.startswith("[") and text.endswith("]"):
            if text in record:
                raise ValueError(f"{path}, line {number}: asked for one {text} per record, got a second.")
            block = record[text] = [(number, text)]
        elif text and block is None:
            raise ValueError(f"{path}, line {number}: asked for a ProteinNet record, which starts with [ID], got {text[:40]!r}.")
        elif text and block is not None:
            block.append((number, text))
    if record:
        yield record


def _chain(record: Record, path: str | os.PathLike) -> Chain:
    name = " ".join(text for _, text in record.get("[ID]", [])[1:])
    last = max(lines[-1][0] for lines in record.values())
    where = f"{path}, record {name or 'without id'}"
    absent = [block for block in NEEDED if len(record.get(block, [])) < 2]
    if absent:
        raise ValueError(f"{where}, line {last}: asked for {', '.join(NEEDED)}; the record ends without {', '.join(absent)}.")
    length = sum(len(text) for _, text in record["[PRIMARY]"][1:])
    atoms = _tertiary(record["[TERTIARY]"], length, where)
    atoms[~_mask(record["[MASK]"], length, where)] = torch.nan
    return Chain(name, atoms, name.split("#")[-1].split("_")[0])


def _tertiary(lines: Lines, length: int, where: str) -> Tensor:
    """Three rows x, y, z of 3 L numbers, N, CA, C of each residue in turn -> (L, 3, 3) in Angstrom."""
    if len(lines) != 4:
        raise ValueError(f"{where}, line {lines[-1][0]}: asked for 3 rows (x, y, z) in [TERTIARY], got {len(lines) - 1}.")
    rows = [_numbers(text, 3 * length, f"{where}, line {number}") for number, text in lines[1:]]
    return torch.tensor(rows, dtype=torch.float64).T.reshape(length, 3, 3) / PICOMETRES


def _numbers(text: str, count: int, where: str) -> list[float]:
    try:
        row = [float(word) for word in text.split()]
    except ValueError as error:
        raise ValueError(f"{where}: asked for coordinates in picometres, {error}.") from error
    if len(row) != count:
        raise ValueError(f"{where}: asked for {count} coordinates, 3 for each letter of [PRIMARY], got {len(row)}.")
    return row


def _mask(lines: Lines, length: int, where: str) -> Tensor:
    marks = "".join(text for _, text in lines[1:])
    if len(marks) != length or set(marks) - set("+-"):
        raise ValueError(
            f"{where}, line {lines[1][0]}: asked for {length} marks + or - in [MASK], one for each letter of [PRIMARY], "
            f"got {len(marks)}: {marks[:40]!r}."
        )
    return torch.tensor([mark == "+" for mark in marks])
