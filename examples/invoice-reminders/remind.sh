#!/bin/sh
# Sends a reminder of each invoice in a folder, by a program that is called with one. Those that got one within a
# fortnight are left out. One that was killed may have left an invoice's lock: it is waited for.
set -u
[ -d "$1" ] || {
    echo "there is no folder $1" >&2
    exit 66
}
failed=0
for invoice in "$1"/*; do
    # Without invoices the pattern stands for itself.
    [ -f "$invoice" ] || continue
    leasehold run "reminders/$(basename "$invoice")" --once-per 14d --wait 1m -- "$2" "$invoice" || failed=$?
done
exit "$failed"
