"""Takes LOCK within SECONDS, says so, and gives it back when it is told a line."""

import sys

import pymysql

port, lock, seconds = sys.argv[1:4]
server = pymysql.connect(host="127.0.0.1", port=int(port), user="root", charset="utf8mb4", autocommit=True)
with server.cursor() as cursor:
    cursor.execute("SELECT GET_LOCK(%s, %s)", (lock, int(seconds)))
    if cursor.fetchone()[0] != 1:
        print("busy", flush=True)
        sys.exit()
    print("held", flush=True)
    sys.stdin.readline()
    cursor.execute("SELECT RELEASE_LOCK(%s)", (lock,))
    print("freed" if cursor.fetchone()[0] == 1 else "lost", flush=True)
