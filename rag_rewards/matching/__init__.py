"""Decisions about answers: right, wrong or undecided."""
