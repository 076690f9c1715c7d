#!/bin/sh
# Makes the report of the night in a folder.
set -eu
mkdir -p "$1"
part="$1/.report.$$"
trap 'rm -f "$part"' EXIT
{
    echo "The report of $(date +%F), made by $(hostname)"
    # … what takes long
} > "$part"
mv "$part" "$1/report.txt"
