"""Scores, explanations and reports for readers: terminal output and HTML pages."""
