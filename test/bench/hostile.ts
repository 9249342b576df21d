/**
 * Measures for how long each hostile request blocks the event loop, in processor time of the main thread, so that other
 * processes do not count. Values above a limit are marked.
 */
import { Agent } from 'node:https';
import { hostileRequests, PREPARED } from '../hostile/requests.ts';
import { send, type Connection } from '../hostile/send.ts';
import { type Server, TOKEN } from './server.ts';

const LONG_MS = 250;

/** Sends each request, or those whose names match `only`, and writes its status and how long it took the main thread. */
export async function hostile(server: Server, only?: RegExp): Promise<void> {
  const agent = new Agent({ keepAlive: true, rejectUnauthorized: false });
  const connection: Connection = { origin: server.origin, agent, token: TOKEN };
  try {
    for (const { path, body } of PREPARED) {
      await send(connection, { method: 'POST', path, type: 'application/json', body: () => JSON.stringify(body) });
    }
    let longest = { ms: 0, name: '' };
    for (const wanted of hostileRequests) {
      if (only !== undefined && !only.test(wanted.name)) continue;
      await server.facts();
      const answer = await send(connection, wanted).catch((error: Error) => ({ status: 0, text: error.message }));
      const { longestTurnCpuMs, busyMs, cpuMs, rssBytes } = await server.facts();
      const expected = [wanted.status].flat().includes(answer.status);
      if (longestTurnCpuMs > longest.ms) longest = { ms: longestTurnCpuMs, name: wanted.name };
      process.stdout.write(
        `${wanted.name.padEnd(60)} ${String(answer.status).padStart(3)}${expected ? '' : ' (not as expected)'} ${Math.round(longestTurnCpuMs).toString().padStart(6)} ms${longestTurnCpuMs > LONG_MS ? ' LONG' : ''} busy ${Math.round(busyMs)} ms, cpu ${Math.round(cpuMs)} ms, ${Math.round(rssBytes / 1048576)} MiB${expected ? '' : ` ${answer.text.slice(0, 300)}`}\n`,
      );
    }
    process.stdout.write(`longest: ${Math.round(longest.ms)} ms, ${longest.name}\n`);
  } finally {
    agent.destroy();
  }
}
