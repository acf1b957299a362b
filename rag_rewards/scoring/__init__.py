"""Dumps of the rollouts of a training, and replay of scored rows with other settings."""
