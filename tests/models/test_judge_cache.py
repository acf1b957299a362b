"""The cache of verdicts: shared by processes, consistent after a kill, tolerant of faults."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import end, finish

from rag_rewards.errors import UsageError
from rag_rewards.models import verdict_cache as cache_module
from rag_rewards.models.verdict_cache import (
    BackgroundCache,
    CacheFaults,
    Entry,
    Verdicts,
    cache_key,
    check_cache,
)

WRITER = """
import sys
from contextlib import closing
from rag_rewards.models.verdict_cache import Entry, Verdicts, cache_key, check_cache
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with closing(Verdicts(check_cache(path))) as store:
    for i in range(count):
        store.put({cache_key(writer=name, i=i): Entry(i % 2, text=f"{name} {i}")})
        print(i, flush=True)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "verdicts.sqlite"


def writer(path, name, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


def opened(path):
    return Verdicts(check_cache(path))


def key(i):
    return cache_key(i=i)


def read(store, keys):
    return dict(store.get(keys))


def test_another_connection_reads_the_entries(path):
    entry = Entry(1, 12, 3, "it says — “yes”")
    cache = check_cache(path)
    with closing(Verdicts(cache)) as one, closing(Verdicts(cache)) as two:
        one.put({key(1): entry})
        assert read(two, [key(1), key(2), key(1)]) == {key(1): entry}
        one.put({key(1): Entry(0)})
        assert read(two, [key(1)]) == {key(1): Entry(0)}
    with closing(opened(path)) as again:
        assert read(again, [key(1)]) == {key(1): Entry(0)}


def test_many_keys_in_one_call(path):
    with closing(opened(path)) as store:
        for i in range(1201):
            store.put({key(i): Entry(i % 2)})
        found = read(store, (key(i) for i in range(2000)))
    assert found == {key(i): Entry(i % 2) for i in range(1201)}


def test_no_keys(path):
    with closing(opened(path)) as store:
        assert read(store, []) == {}


def test_a_long_output_is_truncated(path):
    with closing(opened(path)) as store:
        store.put({key(1): Entry(1, text="é" * 1_000_000)})
        assert read(store, [key(1)])[key(1)].text == "é" * 2000


class Trap:
    """An object that creates a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"verdict":2}',
        b'{"verdict":true}',
        b'{"verdict":"1"}',
        b'{"verdict":1.5}',
        b'{"text":"x"}',
        b"[1]",
        b"1",
        '{"verdict":7}',
        17,
        1.5,
    ],
)
def test_a_broken_entry_is_missing(path, value):
    cache = check_cache(path)
    with closing(Verdicts(cache)) as store:
        store.put({key(1): Entry(1)})
        store.put({key(2): Entry(0)})
    overwrite(path, key(1), value)
    with closing(Verdicts(cache)) as store:
        assert read(store, [key(1), key(2)]) == {key(2): Entry(0)}
        assert store.damaged == 1
        store.put({key(1): Entry(1)})
        assert read(store, [key(1)]) == {key(1): Entry(1)}


def overwrite(path, of, value):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE verdicts SET entry = ? WHERE key = ?", (value, of))


def test_the_cache_does_not_unpickle(path, tmp_path):
    cache, folder = check_cache(path), tmp_path / "trap"
    with closing(Verdicts(cache)) as store:
        store.put({key(1): Entry(1)})
    overwrite(path, key(1), pickle.dumps(Trap(str(folder))))
    with closing(Verdicts(cache)) as store:
        assert read(store, [key(1)]) == {}
    assert not folder.exists()


def test_another_kind_of_file_is_rejected_unchanged(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n" * 1000)
    with pytest.raises(UsageError, match=r"notes\.txt cannot hold verdicts"):
        check_cache(path)
    assert path.read_text() == "my notes\n" * 1000


def test_an_unwritable_path_is_rejected(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError):
        check_cache(tmp_path / "file" / "verdicts.sqlite")
    with pytest.raises(UsageError):
        check_cache(tmp_path)


def in_background(cache, work):
    """Return the result of a coroutine function on a background cache, and the faults."""

    async def run():
        store = BackgroundCache(cache)
        try:
            return await work(store)
        finally:
            await store.close()
            faults.append(store.faults)

    faults = []
    return asyncio.run(run()), faults[0]


def test_background_writes_can_be_read_at_once(path):
    async def work(store):
        for i in range(200):
            store.put(key(i), Entry(i % 2))
        return await store.get(map(key, range(300)))

    expected = {key(i): Entry(i % 2) for i in range(200)}
    assert in_background(check_cache(path), work) == (expected, CacheFaults())
    with closing(opened(path)) as store:
        assert read(store, map(key, range(300))) == expected


def test_a_damaged_file_loses_entries_only(path):
    cache = check_cache(path)
    with closing(Verdicts(cache)) as store:
        store.put({key(i): Entry(i % 2, text="x" * 500) for i in range(500)})
    data = bytearray(path.read_bytes())
    chance = random.Random(0)
    for at in range(2 * 4096, len(data)):
        data[at] = chance.randrange(256)
    path.write_bytes(data)

    async def work(store):
        store.put(key(1), Entry(1))
        return await store.get(key(i) for i in range(500))

    entries, faults = in_background(cache, work)
    assert entries == {}
    assert (faults.unread, faults.unwritten) == (500, 1)
    assert "malformed" in faults.reason


@contextmanager
def locked(path, how):
    """Hold a lock against writers, or against readers as well."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        if how == "everything":
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        if how == "everything":
            other.execute("DELETE FROM verdicts")
        yield other
        other.execute("ROLLBACK")


@pytest.mark.parametrize(("how", "readable"), [("writers", 2), ("everything", 0)])
def test_a_locked_file_does_not_stop_the_event_loop(path, how, readable, monkeypatch):
    monkeypatch.setattr(cache_module, "_BUSY_S", 1.0)
    turns = 0
    with closing(opened(path)) as store:
        store.put({key(1): Entry(1), key(2): Entry(0)})

    async def work(store):
        for i in range(10, 60):
            store.put(key(i), Entry(1))
        nonlocal turns
        reading = asyncio.ensure_future(store.get([key(1), key(2)]))
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        return await reading

    with locked(path, how):
        start = time.monotonic()
        cache = check_cache(path)  # a lock is no reason to refuse the file
        entries, faults = in_background(cache, work)
        assert time.monotonic() - start < 25  # a second for each wait; not one for each entry
    assert turns > 10  # the loop turns while the thread waits for the lock
    assert len(entries) == readable
    assert (faults.unread, faults.unwritten) == (2 - readable, 50)
    assert "locked" in faults.reason


def test_entries_are_written_after_a_lock_ends(path, monkeypatch):
    monkeypatch.setattr(cache_module, "_BUSY_S", 0.05)
    cache = check_cache(path)

    async def work(store):
        with locked(path, "writers"):
            store.put(key(1), Entry(1))
            assert await store.get([key(1)]) == {}
        store.put(key(2), Entry(0))
        return await store.get([key(1), key(2)])

    entries, faults = in_background(cache, work)
    assert entries == {key(1): Entry(1), key(2): Entry(0)}
    assert faults.total == 0


def test_a_killed_process_leaves_its_entries(path):
    process = writer(path, "a", 1_000_000)
    try:
        written = [int(process.stdout.readline()) for _ in range(300)][-1]
    finally:
        end(process)
    with closing(opened(path)) as store:
        found = read(store, (cache_key(writer="a", i=i) for i in range(written + 1)))
        assert len(found) == written + 1
        assert found[cache_key(writer="a", i=7)] == Entry(1, text="a 7")
        store.put({key(1): Entry(1)})
        assert read(store, [key(1)])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_processes_share_a_file(path):
    names = "abc"
    processes = [writer(path, name, 300) for name in names]
    for process in processes:
        finish(process)
    assert [process.returncode for process in processes] == [0] * len(processes)
    with closing(opened(path)) as store:
        for name in names:
            assert len(read(store, (cache_key(writer=name, i=i) for i in range(300)))) == 300


def test_threads_share_a_cache(path):
    cache = check_cache(path)

    def write(name):
        with closing(Verdicts(cache)) as store:
            for i in range(50):
                store.put({cache_key(name=name, i=i): Entry(1)})

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(Verdicts(cache)) as store:
        keys = [cache_key(name=name, i=i) for name in "abcd" for i in range(50)]
        assert len(read(store, keys)) == 200


JSON = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9) | st.booleans()
)


@given(JSON, JSON)
def test_keys_depend_on_the_content_only(one, two):
    same = repr(sorted(one.items())) == repr(sorted(two.items()))
    assert (cache_key(content=one) == cache_key(content=two)) is same
    backwards = dict(reversed(one.items()))
    assert cache_key(content=one) == cache_key(content=backwards)
