"""Random files of rows: blank lines, invalid rows, groups that are apart, missing last newlines."""

from __future__ import annotations

import json
import random
from pathlib import Path


def row(number: int, group: str, rng: random.Random) -> dict[str, object]:
    """Return a row that ctrl-rag, lear and arena can read."""
    fields: dict[str, object] = {
        "group": group,
        "question": f"Question {group}?",
        "documents": [{"text": "one"}, {"text": "two"}],
        "supporting": [1, 2],
        "answers": ["Paris"],
        "response": "It is Paris." + "x" * rng.randrange(50),
        "logprobs": {
            "full": [-0.1, -0.2, -0.3],
            "without": {"1": [-2.0, -2.0, -2.0], "2": [-1.5, -1.0, -1.0]},
        },
    }
    return fields if rng.random() < 0.2 else {"id": f"i{number}", **fields}


_OTHER_LINES = [b"{", b"", b"  \t", b'{"response":"x"}', b'{"group":"g1","x":', b"[1]"]


def random_lines(rng: random.Random, groups: int) -> list[bytes]:
    """Return lines of groups with other lines among them."""
    lines: list[bytes] = []
    for group in range(rng.randrange(1, groups)):
        name = f"g{group}" if rng.random() < 0.95 else f"g{rng.randrange(group + 1)}"
        for number in range(rng.choice([1, 2, 3, 5, 30])):
            if rng.random() < 0.08:
                lines.append(rng.choice(_OTHER_LINES))
            else:
                lines.append(json.dumps(row(number, name, rng)).encode())
    return lines


def write_random_input(folder: Path, rng: random.Random, groups: int = 30) -> str:
    """Write one file or two, and return its name or their pattern."""
    lines, ending = random_lines(rng, groups), rng.choice([b"\n", b"\r\n"])
    tail = rng.choice([b"", ending, ending + b"\n \n", ending + b"   "])
    mark = rng.choice([b"", b"", b"\xef\xbb\xbf"])
    if rng.random() < 0.6:
        (folder / "in.jsonl").write_bytes(mark + ending.join(lines) + tail)
        return str(folder / "in.jsonl")
    middle = rng.randrange(len(lines) + 1)
    (folder / "in.a.jsonl").write_bytes(mark + ending.join(lines[:middle]) + tail)
    (folder / "in.b.jsonl").write_bytes(ending.join(lines[middle:]) + tail)
    return str(folder / "in.*.jsonl")
