"""Shards: parts of the input that processes and machines score independently of each other.

files.py      input files, and the rows between two positions of a file
plan.py       division of the input into shards, at boundaries of rows and groups
score.py      scoring of one shard, to open files or to part files
executor.py   the protocol of executors, which score shards somewhere
local.py      the executor with processes of this machine
run_folder.py what a run needs to continue after an interruption
run.py        scoring of an input to an output file, in order
"""
