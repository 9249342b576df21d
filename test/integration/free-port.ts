/** Finds free ports for tests. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * The first port, which is above the ports of the programs of a cluster, and below node ports of services and the ports that
 * connections get.
 */
const FIRST = 12_000;
const END = 30_000;
const ATTEMPTS = 50;

/**
 * Returns a port that no server of this network namespace uses. It is none that the kernel gives to connections, so that a
 * server that is stopped and started again finds it free.
 */
export async function freePort(): Promise<number> {
  for (let attempt = 1; ; attempt += 1) {
    const port = randomInt(FIRST, END);
    const server = createServer().listen(port, '0.0.0.0');
    try {
      await once(server, 'listening');
    } catch (error) {
      if (attempt < ATTEMPTS) continue;
      throw error;
    }
    server.close();
    await once(server, 'close');
    return port;
  }
}
