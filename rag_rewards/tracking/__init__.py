"""Trackers: the means of a scoring or an evaluation as a run of an experiment tracker.

A tracker gets numbers and settings. It never gets the text of a row.
"""

from rag_rewards.tracking.tracker import Tracker, TrackerName, check_tracker, tracked

__all__ = ["Tracker", "TrackerName", "check_tracker", "tracked"]
