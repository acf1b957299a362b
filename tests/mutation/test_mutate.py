"""Which results count as a mutation that the tests find."""

from __future__ import annotations

import subprocess

import mutate
import pytest

MUTATION = mutate.Mutation("module.py", 1, 8, 9, "1", "2")
TESTS = {
    "test_of_value": "def test_value():\n    assert value == 1\n",
    "test_of_nothing": "def test_nothing():\n    assert True\n",
    "test_that_is_broken": "def test_broken():\n    assert False\n",
}


@pytest.fixture
def find(tmp_path, monkeypatch):
    """Return a function that looks for the mutation with one stage of tests."""
    (tmp_path / "module.py").write_text("value = 1\n")
    (tmp_path / "tests").mkdir()
    for name, text in TESTS.items():
        (tmp_path / "tests" / f"{name}.py").write_text(f"from module import value\n\n\n{text}")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    monkeypatch.setattr(mutate, "TREE", tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # these tests need no plugins
    mutate.failure_without_mutation.cache_clear()

    def found_by(*names):
        paths = tuple(f"tests/{name}.py" for name in names)
        monkeypatch.setattr(mutate, "stages", lambda path, folder: [paths])
        result = mutate.finder(MUTATION, set())
        assert (tmp_path / "module.py").read_text() == "value = 1\n"
        return result

    return found_by


def test_only_a_test_that_passes_without_the_mutation_finds_it(find):
    assert find("test_of_nothing") == ""
    by_value = "tests/test_of_value.py::test_value"
    assert find("test_that_is_broken", "test_of_nothing", "test_of_value") == by_value
    with pytest.raises(
        SystemExit, match=r"without a mutation, tests/nonexistent\.py: pytest ended"
    ):
        find("nonexistent")


@pytest.mark.parametrize("ends_without_mutation", [True, False])
def test_tests_that_do_not_end(find, monkeypatch, ends_without_mutation):
    """They find a mutation only if they end without it."""

    def run(command, *, timeout, **options):
        is_mutated = (mutate.TREE / "module.py").read_text() != "value = 1\n"
        if is_mutated or not ends_without_mutation:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    if ends_without_mutation:
        assert find("test_of_value") == f"longer than {mutate.TIMEOUT} s"
    else:
        with pytest.raises(SystemExit, match="longer than"):
            find("test_of_value")


def test_a_process_without_output(find, monkeypatch):
    ended = subprocess.CompletedProcess([], -9, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    assert mutate.failure(("tests/test_of_value.py",), set()) == "pytest ended with -9: []"
