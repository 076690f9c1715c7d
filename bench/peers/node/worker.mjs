// node redlock under the load that load/src/lib.rs describes: worker.mjs URL.

import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import Redis from "ioredis";
import Redlock from "redlock";

const TTL_MS = 30_000;
const now = () => process.hrtime.bigint();
// One server, or the nodes of redlock://h1,h2,…
const servers = process.argv[2].startsWith("redlock://")
  ? process.argv[2].slice("redlock://".length).split(",").map((host) => `redis://${host}`)
  : [process.argv[2]];
const clients = servers.map((url) => new Redis(url));
// As it is by default, but that a wait has no end.
const locks = new Redlock(clients, { retryCount: -1 });

async function pairs(names, millis) {
  const begun = now();
  const end = begun + BigInt(millis) * 1_000_000n;
  const latencies = [];
  const one = async (name) => {
    for (let asked = now(); asked < end; asked = now()) {
      const lock = await locks.acquire([name], TTL_MS);
      await lock.release();
      latencies.push(now() - asked);
    }
  };
  await Promise.all(Array.from({ length: names }, (_, at) => one(`bench/pair/${at}`)));
  return [now() - begun, ...latencies];
}

async function contend(first, count, holdMs, thinkMs, millis, restMs) {
  const end = now() + BigInt(millis) * 1_000_000n;
  const over = sleep(millis + restMs, null);
  const events = [];
  const pause = async (ms) => {
    if (ms > 0) await sleep(ms);
  };
  const one = async (who) => {
    for (let requested = now(); requested < end; requested = now()) {
      const lock = await Promise.race([locks.acquire(["bench/contended"], TTL_MS), over]);
      const granted = now();
      if (lock === null) {
        events.push(who, requested, granted, granted);
        return;
      }
      await pause(holdMs);
      const releasing = now();
      await lock.release();
      events.push(who, requested, granted, releasing);
      await pause(thinkMs);
    }
  };
  await Promise.all(Array.from({ length: count }, (_, at) => one(first + at)));
  return events;
}

await Promise.all(clients.map((client) => client.ping()));
console.log("ready");
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [verb, ...numbers] = line.split(" ");
  const work = { pairs, contend }[verb];
  console.log((await work(...numbers.map(Number))).join(" "));
}
// Those whose wait was cut short are still at it.
process.exit(0);
