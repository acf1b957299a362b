"""Scoring of files, dumps of the rollouts of a training, and replay of scored rows."""
