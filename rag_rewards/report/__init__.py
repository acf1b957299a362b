"""Scores for people."""
