/**
 * A lock in this network namespace: an abstract socket, which belongs to the namespace like the rules and links that it guards,
 * and disappears with its process.
 */
import { createServer, type Server } from 'node:net';

/** Returns `undefined` if another process has the lock. Closing the server releases it. */
export async function takeNamespaceLock(name: string): Promise<Server | undefined> {
  const server = createServer((socket) => socket.destroy());
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject).listen(`\0${name}`, () => resolve());
    });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return undefined;
    throw error;
  }
  server.unref();
  return server;
}
