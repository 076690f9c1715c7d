// node redlock on one server, told what to do line by line.
const readline = require("node:readline");
const { default: Client } = require("ioredis");
const { default: Redlock } = require("redlock");

const client = new Client({ host: "127.0.0.1", port: Number(process.argv[2]) });
const held = new Map();

async function obey(line) {
  const [order, name, ttl, wait] = line.split(" ");
  if (order === "acquire") {
    const retryDelay = 100;
    const retryCount = Math.floor(Number(wait) / retryDelay);
    const redlock = new Redlock([client], { retryCount, retryDelay, retryJitter: 50 });
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

client.on("ready", async () => {
  console.log("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(await obey(line));
  }
  process.exit(0);
});
