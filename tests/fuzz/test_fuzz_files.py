"""Random files: rows of public data sets, JSON lines, arrays, Parquet, and dumps of rollouts."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import fuzz_datasets
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_checks import check_finite, outcome, same_twice, unchanged
from fuzz_rows import ROWS, ROWS_OF_RECIPES, changed, encoded, lines, mutated, rows, values
from fuzz_texts import texts
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.datasets.catalog import DATASETS
from rag_rewards.datasets.gold import Gold, Problem
from rag_rewards.datasets.gold_rows import read_gold
from rag_rewards.datasets.read_options import ReadOptions
from rag_rewards.datasets.records import Records
from rag_rewards.files.parquet import ParquetOutput, parquet_lines
from rag_rewards.files.sources import open_source
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_line, decode_or_error
from rag_rewards.rows.scored import ScoredRow
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.rollout_dump import RolloutDump
from rag_rewards.selection.questions import has_response, read_question_row

SCORED = msgspec.json.Decoder(ScoredRow)


class InMemory:
    """The records of a file, without the file."""

    path = "file"

    def __init__(self, records):
        self._records = records

    def __iter__(self):
        return enumerate(self._records, start=1)


@st.composite
def rows_of_sets(draw):
    name = draw(st.sampled_from(list(fuzz_datasets.ROWS)))
    row = draw(st.sampled_from(fuzz_datasets.ROWS[name]))
    return name, [row, draw(mutated(row))], [draw(mutated(row))]


@given(rows_of_sets(), st.booleans(), st.sampled_from(["snippet", "full"]), st.integers(0, 3))
@budget(100)
def test_rows_of_data_sets(given, requires_documents, pages, top):
    name, *files = given
    options = ReadOptions(requires_documents=requires_documents, pages=pages, top=top)
    for records in files:
        with unchanged(records):
            read = same_twice(
                lambda records=records: list(read_gold(DATASETS[name], InMemory(records), options))
            )
        for _, gold in read if isinstance(read, list) else ():
            if isinstance(gold, Problem):
                assert gold.reason
            else:
                assert isinstance(gold, Gold)
                assert gold.question.strip()
                assert all(gold.answers)


def write(folder, name, content):
    path = Path(folder) / name
    path.write_bytes(content)
    return str(path)


contents = st.one_of(
    st.lists(lines(), max_size=3).map(b"\n".join),
    st.lists(values, max_size=3).map(encoded),
    st.dictionaries(st.sampled_from(["1", "2", "Data", "data"]), values, max_size=2).map(encoded),
    st.lists(rows, max_size=2).map(lambda rows: encoded({"data": rows})),
    st.binary(max_size=40),
)


@given(
    contents, st.integers(-1, 200), st.booleans(), st.sampled_from([b"", b"\xef\xbb\xbf", b"\x00"])
)
@budget(50)
def test_records_of_a_file(content, end, is_compressed, start):
    content = start + (content if end < 0 else content[:end])
    if is_compressed:
        content = gzip.compress(content)
        content = content if end < 0 else content[: len(content) // 2]
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, "rows.json", content)

        def read():
            with Records(path) as records:
                return list(records)

        same_twice(read)
        for name in ("rows.jsonl", "rows.parquet"):
            path_of_rows = write(folder, name, content)

            def read_lines(path=path_of_rows):
                with closing(open_source(path)) as source:
                    return list(source.lines)

            read_rows = outcome(read_lines)
            for _, line in read_rows if isinstance(read_rows, list) else ():
                decode_line(line, SCORED), read_question_row(line), has_response(line)


parquet_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    texts,
    st.binary(max_size=4),
    st.dates(),
    st.datetimes(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False, min_value=-(10**9), max_value=10**9, places=2),
    st.lists(texts, max_size=2),
    st.fixed_dictionaries({"text": texts}, optional={"id": st.integers(0, 9)}),
)
KEYS = (pa.string(), pa.int64(), pa.binary(), pa.date32())


@given(
    st.dictionaries(
        st.sampled_from(["response", "answers", "id", "documents", "question", "x", "reward"]),
        st.lists(parquet_values, min_size=2, max_size=2),
        min_size=1,
        max_size=3,
    ),
    st.one_of(st.none(), st.tuples(st.sampled_from(KEYS), parquet_values, texts)),
    st.one_of(st.none(), st.integers(0, 4000)),
)
@budget(50)
def test_parquet(columns, pair, damaged):
    arrays = {}
    for name, column in columns.items():
        try:
            arrays[name] = pa.array(column)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            arrays[name] = pa.array([repr(value) for value in column])
    if pair is not None:
        kind, key, value = pair
        with suppress(pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
            arrays["map"] = pa.array([[(key, value)], None], pa.map_(kind, pa.string()))
    file = io.BytesIO()
    try:
        pq.write_table(pa.table(arrays), file)
    except (pa.ArrowException, ValueError):
        return
    data = bytearray(file.getvalue())
    if damaged is not None:
        data[damaged % len(data)] ^= 0x5A

    read = outcome(lambda: list(parquet_lines(io.BytesIO(bytes(data)), "file")))
    for _, line in read if isinstance(read, list) else ():
        decode_line(line, SCORED)


@st.composite
def scored_lines(draw):
    name = draw(st.sampled_from(["arena", "truthrl", "search-r1"]))
    chosen = draw(st.lists(st.sampled_from(ROWS_OF_RECIPES[name]), min_size=1, max_size=3))
    return name, [draw(changed(row)) for row in chosen]


@given(scored_lines())
@budget(30)
def test_scored_rows_as_parquet_and_dumps_of_rollouts(given):
    name, given_rows = given
    rollouts = list(map(decode_or_error, given_rows))
    with tempfile.TemporaryDirectory() as folder:
        dump = RolloutDump(f"{folder}/dump.jsonl")
        scorer = Scorer.load(name, for_parquet=True, dump=dump)
        results = scorer.score_each(rollouts)
        scorer.close()
        dumped = [
            line for path in Path(folder).glob("dump*") for line in path.read_bytes().splitlines()
        ]
        assert len(dumped) == sum(isinstance(each, Rollout) for each in rollouts)
        for line in dumped:
            row = decode_line(line, SCORED)
            assert isinstance(row, ScoredRow), row
            check_finite(json.loads(line, parse_constant=float))
            assert row.is_scored or row.error_text
        scored = b"".join(
            msgspec.json.encode(ScoredRow.of(each, score)) + b"\n"
            for each, score in zip(rollouts, results, strict=True)
            if isinstance(each, Rollout) and not isinstance(score, Exception)
        )

        def publish():
            output = ParquetOutput(f"{folder}/scored.parquet")
            with closing(output):
                output.write(scored)
                output.commit()
            return [line for _, line in read_parquet(f"{folder}/scored.parquet")]

        outcome(publish)


def read_parquet(path):
    with open(path, "rb") as handle:
        yield from parquet_lines(handle, path)


@given(st.sampled_from(ROWS), lines())
@budget(40)
def test_rows_of_dumps(row, line):
    """Rows that a dump of another version or of another program contains."""
    row = decode_line(line, SCORED)
    if isinstance(row, ScoredRow):
        for name in (
            "is_scored reward turn_rewards components correct details error error_text signature "
            "tokens missing_before score"
        ).split():
            outcome(lambda name=name: (v := getattr(row, name), v() if callable(v) else None))
