"""Start scripts of `rag-rewards init`, read by the code of the trainer."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from start_scripts import (  # noqa: F401
    test_an_unknown_setting_is_named,
    test_doctor_accepts_the_environment_of_the_tests,
    test_the_script_of_a_search_agent_requires_a_search_engine,
    test_the_trainer_accepts_components,
    test_the_trainer_accepts_every_setting,
    trainer,
)
