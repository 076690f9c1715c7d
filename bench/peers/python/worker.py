"""redis-py's Lock under the load that load/src/lib.rs describes: worker.py URL."""

import sys
import threading
import time

import redis

TTL_SECONDS = 30
now = time.monotonic_ns


def pairs(client, names, millis):
    begun = now()
    end = begun + millis * 1_000_000
    latencies = [[] for _ in range(names)]

    def one(at):
        while (asked := now()) < end:
            lock = client.lock(f"bench/pair/{at}", timeout=TTL_SECONDS)
            lock.acquire()
            lock.release()
            latencies[at].append(now() - asked)

    together(one, range(names))
    return [now() - begun] + [latency for each in latencies for latency in each]


def contend(client, first, count, hold_ms, think_ms, millis):
    end = now() + millis * 1_000_000
    events = []

    def one(who):
        while (requested := now()) < end:
            lock = client.lock("bench/contended", timeout=TTL_SECONDS)
            lock.acquire()
            granted = now()
            time.sleep(hold_ms / 1000)
            releasing = now()
            lock.release()
            events.extend([who, requested, granted, releasing])
            time.sleep(think_ms / 1000)

    together(one, range(first, first + count))
    return events


def together(one, numbers):
    threads = [threading.Thread(target=one, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    client = redis.Redis.from_url(sys.argv[1])
    client.ping()
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *numbers = line.split()
        work = {"pairs": pairs, "contend": contend}[verb]
        print(*work(client, *map(int, numbers)), flush=True)


main()
