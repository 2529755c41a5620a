// plainjob on better-sqlite3: `node plainjob.mjs DIRECTORY JOBS default|full`, one line of JSON on stdout.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import Database from "better-sqlite3";
import { better, defineQueue, defineWorker } from "plainjob";

const BATCH = 1000;
const [directory, count, durability] = process.argv.slice(2);
const jobs = Number(count);
const head = { to: "someone@example.com", subject: "Your order", text: "" };
const payload = { ...head, text: "x".repeat(200 - JSON.stringify(head).length) };
const quiet = { debug() {}, info() {}, warn: console.warn, error: console.error };

function open(name) {
  const database = new Database(join(directory, name));
  const queue = defineQueue({ connection: better(database), logger: quiet });
  // The queue sets its own when it is defined; what is set after that stays.
  if (durability === "full") database.pragma("synchronous = FULL");
  return { database, queue };
}

function enqueue(queue) {
  for (let sent = 0; sent < jobs; sent += BATCH) {
    queue.addMany("bench", Array(Math.min(BATCH, jobs - sent)).fill(payload));
  }
}

async function work(queue) {
  let done = 0;
  const worker = defineWorker("bench", (job) => void JSON.parse(job.data), {
    queue,
    logger: quiet,
    // Called once the job is marked as done.
    onCompleted: () => {
      if (++done === jobs) void worker.stop();
    },
    onFailed: (_, error) => {
      throw new Error(error);
    },
  });
  await worker.start();
}

const seconds = async (run) => {
  const begun = process.hrtime.bigint();
  await run();
  return Number(process.hrtime.bigint() - begun) / 1e9;
};

const apart = open("apart.db");
const settings = ["journal_mode", "synchronous"].map((name) => apart.database.pragma(name, { simple: true }));
const enqueueing = await seconds(() => enqueue(apart.queue));
const processing = await seconds(() => work(apart.queue));
apart.queue.close();

// The worker's loop holds the thread while it finds jobs, so that nothing else is enqueued meanwhile.
const together = open("together.db");
const both = await seconds(async () => {
  enqueue(together.queue);
  await work(together.queue);
});
together.queue.close();

const manifest = new URL("node_modules/plainjob/package.json", import.meta.url);
console.log(
  JSON.stringify({
    peer: "plainjob",
    version: JSON.parse(readFileSync(manifest, "utf8")).version,
    durability,
    journal_mode: settings[0],
    synchronous: ["off", "normal", "full", "extra"][settings[1]],
    leases: true,
    sandbox: false,
    enqueue_per_second: Math.round(jobs / enqueueing),
    process_per_second: Math.round(jobs / processing),
    end_to_end_per_second: Math.round(jobs / both),
  }),
);
