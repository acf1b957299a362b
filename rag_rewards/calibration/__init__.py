"""Calibration: the agreement of scores with human labels, and thresholds for them.

options.py         the options
columns.py         columns of a row, and labels and scores from their values
claims.py          rows with a premise and a claim, and the files of FaithBench
scores.py          scores of rows: a column, a metric, a recipe, an entailment model
samples.py         one reading of the files: labels, scores and subsets as arrays
figures.py         κ, error rates and AUC with bootstrap intervals
report.py          the result as a value, for tables and JSON
threshold_file.py  a threshold as a file for --config
calibrate.py       all of it
"""

from rag_rewards.calibration.calibrate import calibrate
from rag_rewards.calibration.options import CalibrateOptions
from rag_rewards.calibration.report import Calibration

__all__ = ["CalibrateOptions", "Calibration", "calibrate"]
