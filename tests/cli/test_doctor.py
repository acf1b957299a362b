"""`rag-rewards doctor`: results and fixes."""

from __future__ import annotations

import json
from importlib import metadata

import pytest
from command_line import Cli
from packaging.requirements import Requirement

from rag_rewards.cli import doctor
from rag_rewards.cli.doctor import CheckResult, examine
from rag_rewards.scripts import packages
from rag_rewards.scripts.packages import run_isolated
from rag_rewards.trainers import TRAINERS


def result_of(results: list[CheckResult], name: str) -> CheckResult:
    return next(result for result in results if result.name == name)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Replace the versions of installed packages."""
    versions: dict[str, str] = {}
    real = doctor.installed_version
    monkeypatch.setattr(doctor, "installed_version", lambda name: versions.get(name) or real(name))
    monkeypatch.setattr(doctor, "run_isolated", lambda code: ({"gpus": []}, ""))
    return versions


def only(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    """Pretend that only these packages are installed."""
    for module in (doctor, packages):
        monkeypatch.setattr(module, "installed_version", versions.get)
    monkeypatch.setattr(doctor, "run_isolated", lambda code: ({"gpus": []}, ""))


def test_table_and_json(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    real = examine()
    monkeypatch.setattr(doctor, "examine", lambda: real)
    shown = cli("doctor", code=0).out
    results = json.loads(cli("doctor", "--json", code=0).out)
    assert {"trainers", "extras"} <= {result["area"] for result in results}
    for result in results:
        assert result["name"] in shown
        assert result["state"] == "ok" or result["todo"], result


def test_a_missing_extra_has_a_fix(
    pretend: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = doctor.installed_version
    monkeypatch.setattr(doctor, "installed_version", lambda n: None if n == "pyarrow" else real(n))
    result = result_of(examine(), "parquet")
    assert (result.state, result.fix) == ("absent", 'pip install "rag-rewards[parquet]"')


def test_an_outdated_package_of_an_extra(pretend: dict[str, str]) -> None:
    pretend["pyarrow"] = "3.0.0"
    assert result_of(examine(), "parquet").message == "pyarrow 3.0.0, required >=20"


def test_the_turn_credit_of_installed_trainers(pretend: dict[str, str]) -> None:
    pretend |= {"trl": "1.16.0", "ms-swift": "4.6.0", "openrlhf": "0.11.2"}
    pretend |= {"skyrl": "0.4.0", "nemo-gym": "0.4.0"}
    results = examine()
    assert "TurnGRPOTrainer" in result_of(results, "TRL turns").message
    assert "skyrl.experiment" in result_of(results, "SkyRL turns").message
    for name in ("ms-swift turns", "OpenRLHF turns", "NeMo Gym turns"):
        result = result_of(results, name)
        assert result.state == "absent"
        assert result.message == "turn rewards are summed: this trainer has no turn credit"


def test_an_outdated_trainer_is_a_problem(pretend: dict[str, str]) -> None:
    pretend["verl"] = "0.7.1"
    result = result_of(examine(), "verl")
    assert result.state == "problem"
    assert "compute_score" in result.fix


@pytest.mark.parametrize(
    ("package", "name", "before", "first"),
    [("trl", "TRL", "1.14.0", "1.15.0"), ("ms-swift", "ms-swift", "3.12.1", "4.0.0")],
)
def test_the_first_supported_version(
    pretend: dict[str, str], package: str, name: str, before: str, first: str
) -> None:
    pretend[package] = before
    assert result_of(examine(), name).state == "problem"
    pretend[package] = first
    assert result_of(examine(), name).state == "ok"


def test_a_version_other_than_the_tested_one(pretend: dict[str, str]) -> None:
    pretend["trl"] = "1.17.0"
    result = result_of(examine(), "TRL")
    assert (result.state, result.message) == ("ok", "1.17.0 (tests use 1.16.0)")


@pytest.mark.parametrize(
    ("package", "name", "version", "message"),
    [
        ("skyrl", "SkyRL", "0.4.0", "0.4.0"),
        ("skyrl", "SkyRL", "0.3.1", "0.3.1 is older than 0.4"),
        ("slime", "slime", "0.3.0", "0.3.0 (the tests do not install it)"),
        ("nemo-gym", "NeMo Gym", "0.4.1", "0.4.1 (tests use 0.4.0)"),
    ],
)
def test_versions_of_other_trainers(
    pretend: dict[str, str], package: str, name: str, version: str, message: str
) -> None:
    pretend[package] = version
    result = result_of(examine(), name)
    assert result.message == message
    assert (result.state == "problem") == ("older" in message)


def test_a_plugin_without_an_entry_point(
    pretend: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend["verl"] = "0.9.1"
    monkeypatch.setattr(metadata, "entry_points", lambda group: ())
    result = result_of(examine(), "verl plugin")
    assert result.state == "problem"
    assert "install" in result.fix


@pytest.mark.parametrize(
    ("answer", "state", "expected"),
    [
        ((None, "ImportError: no"), "problem", "ImportError: no"),
        (({"a": "registered", "b": "not imported yet"}, ""), "problem", "b: not imported"),
        (({"b": "registered", "a": "registered"}, ""), "ok", "a, b"),
    ],
)
def test_states_of_the_plugin(
    pretend: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[object, str],
    state: str,
    expected: str,
) -> None:
    pretend["verl"] = "0.9.1"
    point = metadata.EntryPoint("rag_rewards", "x", doctor.PLUGINS)
    monkeypatch.setattr(metadata, "entry_points", lambda group: (point,))
    monkeypatch.setattr(
        doctor, "run_isolated", lambda code: answer if "verl" in code else ({"gpus": []}, "")
    )
    result = result_of(examine(), "verl plugin")
    assert result.state == state
    assert expected in result.message


def test_the_exit_code_of_a_problem(cli: Cli, pretend: dict[str, str]) -> None:
    pretend["trl"] = "0.9.0"
    cli("doctor", code=1)


def test_isolated_code_may_fail_or_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_isolated('print("noise"); print(\'{"a": []}\')') == ({"a": []}, "")
    assert run_isolated("raise ImportError('gone')") == (None, "ImportError: gone")
    assert run_isolated("import sys; sys.exit(3)") == (None, "exit code 3")
    assert run_isolated("pass") == (None, "the process printed no result")
    assert run_isolated("print('[1]')") == (None, "the process printed no result")
    ends = "import atexit; atexit.register(print, 'closing'); print('{\"a\": 1}'); print(3)"
    assert run_isolated(ends) == ({"a": 1}, "")
    monkeypatch.setattr(packages, "PROBE_SECONDS", 0.2)
    value, error = run_isolated("import time; time.sleep(9)")
    assert value is None
    assert "no answer" in error


IMPORTS = {"TransferQueue": "0.1.11", "cachetools": "7", "fastapi": "0.1", "uvicorn": "0.1"}
"""The packages that the trainer of verl imports, and that only its extras require."""


@pytest.fixture
def verl_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the requirements of verl by some of those of verl 0.9.1."""
    lines = [
        "transformers!=5.6.0,<5.11,>=5.5.3",
        "ray[default]>=2.41.0",
        'TransferQueue>=0.1.10; extra == "verl-core"',
        'cachetools; extra == "verl-core"',
        'pyzmq; extra == "verl-core"',
        'torch==2.11.0; extra == "vllm"',
        'vllm==0.24.0; extra == "vllm"',
        'sglang==0.5.12; extra == "sglang"',
    ]
    real = metadata.requires
    monkeypatch.setattr(metadata, "requires", lambda name: lines if name == "verl" else real(name))


@pytest.mark.parametrize(
    ("versions", "state", "message", "fix"),
    [
        ({"transformers": "5.9.0"}, "ok", "", ""),
        (
            {"transformers": "5.19.0"},
            "problem",
            "transformers 5.19.0, verl 0.9.1 requires !=5.6.0,<5.11,>=5.5.3",
            'pip install "transformers!=5.6.0,<5.11,>=5.5.3"',
        ),
        ({"transformers": "5.9.0", "vllm": "0.24.0", "torch": "2.11.0"}, "ok", "", ""),
        (
            {"transformers": "5.9.0", "vllm": "0.32.0", "torch": "2.11.0"},
            "problem",
            "vllm 0.32.0, verl 0.9.1 requires ==0.24.0",
            'pip install "verl[vllm]==0.9.1"',
        ),
    ],
)
def test_versions_that_a_trainer_does_not_accept(
    monkeypatch: pytest.MonkeyPatch,
    verl_metadata: None,
    versions: dict[str, str],
    state: str,
    message: str,
    fix: str,
) -> None:
    found = {"verl": "0.9.1", "torch": "2.13.0", "ray": "2.60.0", **IMPORTS, **versions}
    only(monkeypatch, found)
    result = result_of(examine(), "verl packages")
    assert result.state == state
    assert message in result.message
    assert fix in result.fix


def test_packages_that_a_training_imports(
    monkeypatch: pytest.MonkeyPatch, verl_metadata: None
) -> None:
    found = {"verl": "0.9.1", "transformers": "5.9.0", "uvicorn": "0.54.0"}
    only(monkeypatch, found)
    result = result_of(examine(), "verl packages")
    assert result.state == "problem"
    names = "ray, TransferQueue, cachetools, fastapi"
    assert result.message == f"4 of its packages are not installed: {names}"
    missing = '"ray[default]>=2.41.0" "TransferQueue>=0.1.10" cachetools fastapi'
    assert result.fix == f"pip install {missing}"


@pytest.mark.parametrize("name", [name for name, each in TRAINERS.items() if each.environment])
def test_the_environment_of_the_tests_is_accepted(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A package that the tests do not need either is a problem in other environments only."""
    trainer = TRAINERS[name]
    lines = [Requirement(line) for line in trainer.combination]
    pins = [str(line.specifier).partition("==")[2] for line in lines]
    versions = {
        line.name: pin or next(line.specifier.filter(["1.28", "0.1"]))
        for line, pin in zip(lines, pins, strict=True)
    }
    versions[trainer.package] = trainer.tested
    monkeypatch.setattr(metadata, "requires", lambda n: ["a>=2"] if n == trainer.package else [])
    only(monkeypatch, versions)
    monkeypatch.setattr(doctor.metadata, "entry_points", lambda group: ())
    result = result_of(examine(), f"{trainer.title} packages")
    assert result.state == "absent"
    assert result.message == "1 of its packages are not installed: a"
    assert result.fix == 'pip install "a>=2"'
    del versions["pytest"]
    assert result_of(examine(), f"{trainer.title} packages").state == "problem"


def test_advice_does_not_replace_the_packages_of_an_installed_trainer(
    pretend: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip install ms-swift` would replace the TRL and transformers of other trainers."""
    pretend["axolotl"] = "0.21.0"
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.13.1")
    results = examine()
    swift = TRAINERS["ms-swift"].installation
    assert result_of(results, "ms-swift").fix == f"in another environment: {swift}"
    assert "another environment: with Python >=3.10,<3.13: " in result_of(results, "verl").fix


@pytest.mark.parametrize(
    ("dependent", "line"),
    [("axolotl", "trl==1.8.0"), ("unsloth", "trl!=0.19.0,<=0.24.0,>=0.18.2")],
)
def test_a_trainer_whose_version_another_package_fixes(
    monkeypatch: pytest.MonkeyPatch, dependent: str, line: str
) -> None:
    """An upgrade of TRL would break Axolotl 0.18.0, which the tests of its page use."""
    found = {dependent: "0.18.0", "trl": "1.8.0"}
    monkeypatch.setattr(metadata, "requires", lambda n: [line] if n == dependent else [])
    only(monkeypatch, found)
    results = examine()
    result = result_of(results, "TRL")
    assert (result.state, result.fix) == ("ok", "")
    assert result.message == f"1.8.0, a requirement of {dependent}"
    assert not [result for result in results if result.state == "problem"]
    # The extra trl requires TRL 1.15, which would replace this version.
    assert "install this extra in another environment" in result_of(results, "trl").fix
    assert not any(result.name == "TRL packages" for result in results)


@pytest.mark.parametrize(
    ("own", "wanted", "excludes"),
    [
        ("x<5", "x", False),
        ("x>1,<3", "x>=0.5", False),
        ("x<3", "x>2", False),
        ("x==2.*", "x>2.0", False),
        ("x~=2.1", "x!=2.1", False),
        ("x<0.13", "x>=0.32", True),
        ("x==0.24.0", "x>=0.32", True),
        ("x<=2", "x>2", True),
    ],
)
def test_requirements_that_exclude_each_other(own: str, wanted: str, excludes: bool) -> None:
    for pair in ((own, wanted), (wanted, own)):
        assert doctor._excludes(*map(Requirement, pair)) == excludes


def test_a_trainer_that_excludes_the_extra_vllm(
    monkeypatch: pytest.MonkeyPatch, verl_metadata: None
) -> None:
    found = {"verl": "0.9.1", "vllm": "0.24.0"}
    only(monkeypatch, found)
    result = result_of(examine(), "vllm")
    assert result.state == "absent"
    assert result.message == "vllm 0.24.0, required >=0.32"
    assert "verl requires vllm==0.24.0" in result.fix
    assert "--model URL --backend vllm" in result.fix


def test_the_fix_of_a_missing_trainer_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: None)
    results = examine()
    assert result_of(results, "verl").fix == (
        'pip install "verl[vllm]==0.9.1" && pip install flash-attn==2.8.3 --no-build-isolation'
    )
    assert "{" not in " ".join(result.fix for result in results)


def test_a_trainer_that_another_one_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    """ms-swift 4.6.0 requires TRL before 1.0: an upgrade of TRL would break it."""
    found = {"ms-swift": "4.6.0", "trl": "0.29.1", "vllm": "0.32.0"}
    lines = {"ms-swift": ["trl<1.0,>=0.15"], "trl": ['vllm<0.13.0; extra == "vllm"']}
    real = metadata.requires
    monkeypatch.setattr(metadata, "requires", lambda name: lines.get(name) or real(name))
    only(monkeypatch, found)
    results = examine()
    assert result_of(results, "TRL").state == "ok"
    assert "a requirement of ms-swift" in result_of(results, "TRL").message
    assert result_of(results, "ms-swift packages").state == "ok"
    assert result_of(results, "vllm").state == "ok"
    assert not any(result.name == "TRL packages" for result in results)
