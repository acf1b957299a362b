"""The identifier of a run: equal in all processes of a run on Ray, and new in the next run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from processes import WAIT_SECONDS

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]

# The job has the same number in both clusters.
RUNS = """
import json, ray
from rag_rewards.scoring.run_id import new_run_id
runs = []
for _ in range(2):
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    class Worker:
        def run_id(self):
            return new_run_id()
    workers = [ray.remote(Worker).remote() for _ in range(2)]
    own = [new_run_id(), *ray.get([worker.run_id.remote() for worker in workers])]
    runs.append([ray.get_runtime_context().get_job_id(), *own])
    ray.shutdown()
print(json.dumps(runs))
"""


def test_the_workers_of_a_run_have_its_identifier() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RUNS], capture_output=True, check=True, timeout=WAIT_SECONDS
    )
    [first_job, *first], [second_job, *second] = json.loads(ran.stdout.splitlines()[-1])
    assert first_job == second_job
    assert len({*first}) == len({*second}) == 1
    assert first[0] != second[0]
