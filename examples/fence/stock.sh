#!/bin/sh
# Takes pieces out of the stock that a file counts, and never more than there are.
#
#   leasehold run stock -- ./stock.sh /var/lib/shop/stock 3
#
# Two runs don't overlap, because of the lock. A run that is frozen past its time and goes on after another one has
# been there changes nothing and exits 76, because of the fence.
set -eu
file=$1 # begins with / or ./
pieces=$2

# Before reading: from here on no older run can write any more.
leasehold fence check "$file" "$LEASEHOLD_TOKEN" >&2
left=$(cat "$file")
if [ "$left" -lt "$pieces" ]; then
    echo "only $left left" >&2
    exit 1
fi
echo "$((left - pieces))" | leasehold fence write "$file" "$LEASEHOLD_TOKEN" >&2
echo "$((left - pieces)) left"
