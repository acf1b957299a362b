"""The file of sampled responses."""

from __future__ import annotations

import json

import pytest

from rag_rewards.errors import UsageError
from rag_rewards.selection.sampling import SampledResponse, SampleFile, SamplingOptions

SETTINGS = {"model": "m", **SamplingOptions().settings}


def response_to(prompt, number):
    return SampledResponse(f"{prompt:016x}", number, f"response {number}", "stop")


def test_an_incomplete_last_line_is_removed(tmp_path):
    path = tmp_path / "samples.jsonl"
    samples = SampleFile(str(path), SETTINGS)
    samples.add([response_to(1, 0), response_to(2, 0), response_to(1, 1)])
    samples.close()
    whole = path.read_bytes()
    for size in range(len(whole) - 40, len(whole)):
        path.write_bytes(whole[:size])
        samples = SampleFile(str(path), SETTINGS)
        assert sorted(samples.of(f"{1:016x}")) == [0]
        assert samples.of(f"{2:016x}") == {0: response_to(2, 0)}
        samples.add([response_to(1, 1)])
        samples.close()
        assert path.read_bytes() == whole


def test_a_file_with_an_incomplete_first_line_is_replaced(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_bytes(b'{"sampled_with":{"mod')
    SampleFile(str(path), SETTINGS).close()
    assert json.loads(path.read_bytes()) == {"sampled_with": SETTINGS}


def test_samples_of_version_0_2_0_have_a_top_p_of_1(tmp_path):
    path = tmp_path / "samples.jsonl"
    old = {name: value for name, value in SETTINGS.items() if name not in ("top_p", "stop")}
    path.write_text(json.dumps({"sampled_with": old}) + "\n")
    SampleFile(str(path), SETTINGS).close()
    for name, value in (("top_p", 0.9), ("stop", "</extract>")):
        with pytest.raises(UsageError, match=f"has samples with {name}"):
            SampleFile(str(path), SETTINGS | {name: value})


@pytest.mark.parametrize("name", SETTINGS)
def test_samples_with_other_settings_are_refused(tmp_path, name):
    path = tmp_path / "samples.jsonl"
    SampleFile(str(path), SETTINGS).close()
    with pytest.raises(UsageError, match=f"has samples with {name}"):
        SampleFile(str(path), SETTINGS | {name: 7})
    path.write_text("another file\n")
    with pytest.raises(UsageError, match="does not contain samples"):
        SampleFile(str(path), SETTINGS)
