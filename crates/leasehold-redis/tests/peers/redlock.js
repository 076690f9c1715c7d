// node redlock on the servers at these ports, told what to do line by line.
const readline = require("node:readline");
const { default: Client } = require("ioredis");
const { default: Redlock } = require("redlock");

const ports = process.argv.slice(2).map(Number);
const clients = ports.map((port) => new Client({ host: "127.0.0.1", port }));
const held = new Map();

async function obey(line) {
  const [order, name, ttl, wait] = line.split(" ");
  if (order === "acquire") {
    const retryDelay = 100;
    const retryCount = Math.floor(Number(wait) / retryDelay);
    const redlock = new Redlock(clients, { retryCount, retryDelay, retryJitter: 50 });
    redlock.on("error", () => {});
    try {
      held.set(name, await redlock.acquire([name], Number(ttl)));
      return "granted";
    } catch {
      return "busy";
    }
  }
  try {
    await held.get(name).release();
    return "released";
  } catch {
    return "gone";
  }
}

const ready = clients.map((client) => new Promise((resolve) => client.on("ready", resolve)));
Promise.all(ready).then(async () => {
  console.log("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(await obey(line));
  }
  process.exit(0);
});
