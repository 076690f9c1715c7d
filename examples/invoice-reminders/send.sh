#!/bin/sh
# Sends the reminder of one invoice. Here it is a line in a file.
set -eu
echo "reminder of $(basename "$1")" >> sent
