"""Input and output: sources, sinks and the pool of scoring processes."""
