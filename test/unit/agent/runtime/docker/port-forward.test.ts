import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { PortDialer } from '../../../../../agent/runtime/docker/port-forward.ts';
import { until } from '../../../../until.ts';

/** Entering a network namespace, also the own one, takes the rights of root. */
const skip = process.getuid?.() === 0 ? false : 'needs root';

/** Returns the ids of the processes that this one has started. */
function children(): readonly string[] {
  return readdirSync('/proc').filter((name) => {
    try {
      return (
        /^\d+$/.test(name) &&
        readFileSync(`/proc/${name}/stat`, 'utf8').split(') ')[1]?.split(' ')[1] === String(process.pid)
      );
    } catch {
      // The process has ended meanwhile.
      return false;
    }
  });
}

describe('a connection to a port that only loopback reaches', { skip }, () => {
  let server: Server;
  const gone = new AbortController();
  const port = (): number => (server.address() as AddressInfo).port;
  const target = (namespace: string) => ({ namespace, ips: [], pid: process.pid });

  before(async () => {
    // The server never ends its side of a connection.
    server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => undefined);
      socket.resume();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });

  after(async () => {
    gone.abort();
    await until('the processes end', () => children().length === 0);
    server.close();
  });

  it('leaves no process when it is closed, whatever its server does', async () => {
    const stream = await new PortDialer().dial(target('default'), port(), gone.signal);
    stream.on('error', () => undefined);
    assert.equal(children().length, 1);
    stream.destroy();
    await until('the process ends', () => children().length === 0);
  });

  it('is one of as many as the node may have processes for, which namespaces share', async () => {
    const dialer = new PortDialer();
    const dial = async (namespace: string): Promise<string> => {
      const stream = await dialer.dial(target(namespace), port(), gone.signal);
      stream.on('error', () => undefined);
      return namespace;
    };
    const results = await Promise.allSettled(Array.from({ length: 40 }, () => dial('greedy')));
    assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 32);
    assert.equal(await dial('other'), 'other');
    await until('the processes of the limit', () => children().length === 32);
  });
});
