"""Compares a dump of `skald say --replay` with a reference case of the same codes, row by row.

    python compare.py DUMP REFERENCE [--cosine 0.99999] [--json]

Both folders hold the arrays of README.md; rows that only one side has are left out. Exit status 0 when every row of
hidden states, logits and predictor logits has at least the cosine and the same largest entry, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np


def rows_of(folder: Path, name: str) -> np.ndarray:
    array = np.load(folder / f"{name}.npy").astype(np.float64)
    return array.reshape(-1, array.shape[-1])


def compare(dump: Path, reference: Path, name: str) -> dict:
    a, b = rows_of(dump, name), rows_of(reference, name)
    count = min(len(a), len(b))
    if count == 0:
        raise SystemExit(f"{name}: no rows to compare")
    a, b = a[:count], b[:count]
    cosine = np.sum(a * b, axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return {
        "array": name,
        "rows": count,
        "worst_cosine": float(cosine.min()),
        "worst_row": int(cosine.argmin()),
        "largest_difference": float(np.abs(a - b).max()),
        "relative_difference": float((np.abs(a - b).max(axis=1) / np.abs(b).max(axis=1)).max()),
        "argmax_disagreements": int(np.sum(a.argmax(axis=1) != b.argmax(axis=1))),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dump", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--cosine", type=float, default=0.99999)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    ids = json.loads((args.reference / "case.json").read_text("utf-8"))["ids"]
    same_ids = np.array_equal(np.load(args.dump / "ids.npy"), ids)
    results = [compare(args.dump, args.reference, n) for n in ("prompt_rows", "hidden", "logits", "predictor_logits")]
    failed = not same_ids or any(
        r["worst_cosine"] < args.cosine or (r["argmax_disagreements"] and "logits" in r["array"]) for r in results)
    if args.json:
        print(json.dumps({"same_ids": same_ids, "results": results, "passed": not failed}))
    else:
        print(f"token ids {'equal' if same_ids else 'DIFFER'}")
        for r in results:
            print(f"{r['array']:<17} {r['rows']:>4} rows  worst cosine {r['worst_cosine']:.9f} (row {r['worst_row']})  "
                  f"largest difference {r['largest_difference']:.2e} ({r['relative_difference']:.1e} of the row)  "
                  f"other argmax {r['argmax_disagreements']}")
        print("equal within the bound" if not failed else "DIFFERENT")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
