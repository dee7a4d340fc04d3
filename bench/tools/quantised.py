"""Prints a table of the results that quantised_gpu.sh has left in a directory: python3 quantised.py DIR."""
import json
import sys
from pathlib import Path

PROMPTS = (10, 50, 100, 200, 400)


def rows(directory, kind, name):
    """The rows of a result by prompt length or concurrency; none if it is not there."""
    file = directory / f"{kind}-{name}.json"
    if not file.exists():
        return {}
    return {r.get("prompt_tokens") or r.get("concurrency"): r for r in json.loads(file.read_text())["rows"]}


def number(value, digits=2):
    return f"{value:.{digits}f}" if value else "-"


def line(directory, name):
    decode, load = rows(directory, "decode", name), rows(directory, "batch", name)
    first = rows(directory, "ttft", name) or decode
    cells = [name, number(decode.get(10, {}).get("tokens_per_s"), 1), number(decode.get(10, {}).get("gb_per_s"), 0)]
    cells += [number(first.get(n, {}).get("ttft_ms", {}).get("p50")) for n in PROMPTS]
    one, eight = (load.get(n, {}).get("itl_ms", {}).get("p50") for n in (1, 8))
    return cells + [number(one), number(eight), number(eight / one if one and eight else 0)]


def main():
    directory = Path(sys.argv[1])
    names = sorted({f.stem.split("-", 1)[1] for f in directory.glob("*-*.json")})
    table = [["weights", "tok/s", "GB/s", *(f"TTFT {n}" for n in PROMPTS), "step of 1", "of 8", "ratio"]]
    table += [line(directory, name) for name in names]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)))


if __name__ == "__main__":
    main()
