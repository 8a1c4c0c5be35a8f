"""Regenerates the tiny snapshots and every reference case and reports any difference to the committed fixtures.

    python check.py [--models-only]

Snapshots must be equal byte for byte; ids, codes and shapes exactly; float arrays within a tolerance, since the last bits
depend on the processor. The exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import sys
import tempfile
from pathlib import Path
from typing import Iterator

import numpy as np

from tiny import VARIANTS, write_tiny

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
TOLERANCE = 2e-5  # of the largest magnitude in the array
MARGIN_TOLERANCE = 0.02  # relative: differences of nearly equal numbers


def file_names(folder: Path) -> set[str]:
    return {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}


def compare_trees(committed: Path, fresh: Path, compare) -> Iterator[str]:
    ours, theirs = file_names(committed), file_names(fresh)
    yield from (f"{committed.name}/{name}: not generated any more" for name in sorted(ours - theirs))
    yield from (f"{committed.name}/{name}: not committed" for name in sorted(theirs - ours))
    for name in sorted(ours & theirs):
        for difference in compare(committed / name, fresh / name):
            yield f"{committed.name}/{name}: {difference}"


def compare_bytes(committed: Path, fresh: Path) -> Iterator[str]:
    if not filecmp.cmp(committed, fresh, shallow=False):
        yield "bytes differ"


def compare_arrays(committed: np.ndarray, fresh: np.ndarray) -> Iterator[str]:
    if committed.shape != fresh.shape or committed.dtype != fresh.dtype:
        yield f"{committed.dtype}{list(committed.shape)} became {fresh.dtype}{list(fresh.shape)}"
    elif committed.dtype.kind != "f":
        if not np.array_equal(committed, fresh):
            yield f"{int((committed != fresh).sum())} of {committed.size} values differ"
    elif committed.size:
        distance = float(np.abs(committed.astype(np.float64) - fresh).max())
        if not distance <= TOLERANCE * max(float(np.abs(committed).max()), 1e-3):  # also true for NaN
            yield f"values differ by up to {distance:.2e}"


def compare_values(committed, fresh, path: str = "") -> Iterator[str]:
    """Compares two JSON values; floats are measured margins and levels, everything else must be equal."""
    if isinstance(committed, dict) and isinstance(fresh, dict) and committed.keys() == fresh.keys():
        for key in committed:
            yield from compare_values(committed[key], fresh[key], f"{path}.{key}")
    elif isinstance(committed, float) and isinstance(fresh, float) and path.split(".")[1] != "sampling":
        if abs(committed - fresh) > MARGIN_TOLERANCE * abs(committed) + 1e-5:
            yield f"{path[1:]} was {committed}, is {fresh}"
    elif committed != fresh:
        yield f"{path[1:]} was {committed!r}, is {fresh!r}"


def compare_case_file(committed: Path, fresh: Path) -> Iterator[str]:
    if committed.suffix == ".npy":
        yield from compare_arrays(np.load(committed), np.load(fresh))
    else:
        yield from compare_values(json.loads(committed.read_text("utf-8")), json.loads(fresh.read_text("utf-8")))


def check_models(scratch: Path) -> list[str]:
    for name, variant in VARIANTS.items():
        write_tiny(scratch / "models" / name, variant)
    return list(compare_trees(FIXTURES / "models", scratch / "models", compare_bytes))


def check_cases(scratch: Path) -> list[str]:
    import audio
    from export import export  # needs the official package, the models do not

    unfit = export(FIXTURES / "models", scratch / "cases")
    differences = list(compare_trees(FIXTURES / "cases", scratch / "cases", compare_case_file))
    audio.write_resampled(scratch / "audio")
    for fresh in sorted((scratch / "audio").iterdir()):
        differences += [f"audio/{fresh.name}: {d}" for d in compare_case_file(FIXTURES / "audio" / fresh.name, fresh)]
    return differences + ([f"{unfit} cases are not fit to be tests"] if unfit else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models-only", action="store_true", help="numpy is enough for this part")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        differences = check_models(Path(scratch))
        if not args.models_only:
            differences += check_cases(Path(scratch))
    for difference in differences:
        print(f"differs: {difference}")
    print(f"{len(differences)} differences")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
