"""Takes the lock of NAME as HOW takes it, says so, and gives it back when it is told a line.

hashtext: as people do it with psycopg, waiting on the server. gem: by the statements of the Ruby gem with_advisory_lock,
which asks again and again. With ONCE it doesn't wait.
"""

import secrets
import sys
import time
import zlib

import psycopg

port, how, name, once = sys.argv[1:5]
server = psycopg.connect(host="127.0.0.1", port=int(port), user="postgres", dbname="locks", autocommit=True)


def ask(statement, *parameters):
    return server.execute(statement, parameters).fetchone()[0]


def gem(function):
    keys = f"{zlib.crc32(name.encode()) & 0x7FFFFFFF},0"
    return ask(f"SELECT {function}({keys}) AS t{secrets.token_hex(16)} /* {name} */")


def take():
    if how == "gem":
        while not (got := gem("pg_try_advisory_lock")) and once != "once":
            time.sleep(0.1)
        return got
    if once == "once":
        return ask("SELECT pg_try_advisory_lock(hashtext(%s))", name)
    ask("SELECT pg_advisory_lock(hashtext(%s))", name)
    return True


def give_back():
    if how == "gem":
        return gem("pg_advisory_unlock")
    return ask("SELECT pg_advisory_unlock(hashtext(%s))", name)


if take():
    print("held", flush=True)
    sys.stdin.readline()
    print("freed" if give_back() else "lost", flush=True)
else:
    print("busy", flush=True)
