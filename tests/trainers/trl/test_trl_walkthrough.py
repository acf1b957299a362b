"""The section about TRL of docs/start-training.md, which trains one step."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from walkthrough import PAGE, commands, follow, lay_out

sys.path.append(str(Path(__file__).resolve().parents[2] / "models"))
from tiny_models import save


def test_the_commands_of_the_page_train_one_step(tmp_path: Path, shared: Path) -> None:
    prepare, init, start, small = commands("TRL")
    assert small.startswith(f"{start} --")
    lay_out(tmp_path, shared)
    for command in (prepare, init, small):
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr[-3000:]
    assert "'arena/not_scored': '0'" in ran.stdout
    assert "'rewards/arena/mean':" in ran.stdout
    assert (tmp_path / "run" / "arena" / "checkpoint-1").is_dir()


def test_the_commands_of_the_readme_train_on_rows_of_a_user(tmp_path: Path) -> None:
    readme = (PAGE.parents[1] / "README.md").read_text("utf-8")
    [block] = re.findall(r"^```sh trl\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    assert f"```sh trl\n{block}```" in (PAGE.parents[1] / "AGENTS.md").read_text("utf-8")
    init, start = block.splitlines()
    *_, small = commands("TRL")
    rivers = {"Paris": "Seine", "Lyon": "Rhone", "Rome": "Tiber"}
    rows = [
        {
            "query": f"Which river runs through {city}?",
            "gold": [river],
            "contexts": [f"{city} lies on the {river}.", "A river is long."],
        }
        for city, river in rivers.items()
    ]
    (tmp_path / "my.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    save(tmp_path / "path" / "to" / "model")
    for command in (init, small):
        assert small.startswith(start)
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr[-3000:]
    assert "'arena/not_scored': '0'" in ran.stdout


def test_the_trial_trains_a_tiny_model_with_different_rewards(tmp_path: Path) -> None:
    init, train = commands("Trial with a tiny model", "trl")
    for command in (init, train):
        ran = follow(command, tmp_path)
        assert ran.returncode == 0, ran.stderr[-3000:]
    logged = [float(number) for number in re.findall(r"'reward': '([\d.]+)'", ran.stdout)]
    assert len(logged) == 4
    assert 3 < logged[0] < logged[-1] < 14  # the maximum of arena is 14
    shares = re.findall(r"'frac_reward_zero_std': '([\d.]+)'", ran.stdout)
    assert all(float(share) < 0.8 for share in shares)
    assert set(re.findall(r"'arena/not_scored': '(.*?)'", ran.stdout)) == {"0"}
