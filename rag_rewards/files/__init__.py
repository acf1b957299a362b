"""Files of rows.

storage.py          addresses of files: local paths, folders, patterns, URLs of object stores
remote_files.py     the file systems of object stores
version.py          the version of a file, by which a change is noticed, and its digest
atomic.py           files that get their name when they are complete
lock.py             locks of files
compression.py      gzip, Zstandard and bzip2
lines.py            the lines of a file with their numbers
parquet.py          the rows of Parquet files, and scored rows as Parquet
parquet_columns.py  rows as values of Parquet columns
sources.py          the rows of an input in chunks
grouped_lines.py    the rows of an input in groups
output.py           outputs, which only one run may write, rows in error, and temporary lines
output_check.py     outputs that would overwrite an input
"""
