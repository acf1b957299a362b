"""Calibration: the agreement of scores with human labels, and thresholds for them.

options.py         the options
claims.py          rows with a premise and a claim
samples.py         one reading of the files: labels, scores and subsets as arrays
scores.py          scores of rows: a column, a metric, a recipe, an entailment model
graded.py          the agreement with grades
orders.py          the grades of a group in several orders
report.py          the result as a value, for tables and JSON, and its reliability curves
threshold_file.py  a threshold as a file for --config
calibrate.py       all of it
"""

from rag_rewards.calibration.calibrate import calibrate
from rag_rewards.calibration.options import CalibrateOptions
from rag_rewards.calibration.report import Calibration

__all__ = ["CalibrateOptions", "Calibration", "calibrate"]
