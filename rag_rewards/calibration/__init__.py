"""Calibration: the agreement of scores with human labels, and thresholds for them.

options.py         the options
columns.py         columns of a row, and the scores in them
claims.py          rows with a premise and a claim, and the files of FaithBench
scores.py          scores of rows: a column, a metric, a recipe, an entailment model
samples.py         one reading of the files: labels, scores and subsets as arrays
consistency.py     agreement of scores with each other, and of a judge with itself
report.py          the result as a value, for tables and JSON
threshold_file.py  a threshold as a file for --config
reliability_svg.py  reliability curves as a picture
calibrate.py       all of it
"""

from rag_rewards.calibration.calibrate import calibrate
from rag_rewards.calibration.options import CalibrateOptions
from rag_rewards.calibration.report import Calibration

__all__ = ["CalibrateOptions", "Calibration", "calibrate"]
