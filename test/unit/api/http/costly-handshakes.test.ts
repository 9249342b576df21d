/** Tests which handshakes of real TLS connections count as costly. */
import assert from 'node:assert/strict';
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type JsonWebKeyInput,
  type KeyObject,
} from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { type AddressInfo, connect as connectTcp, createServer as createTcpServer } from 'node:net';
import { createServer as createHttpsServer } from 'node:https';
import { connect, createServer, type Server as TlsServer } from 'node:tls';
import { before, describe, it, type TestContext } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { CostlyHandshakes } from '../../../../api/http/costly-handshakes.ts';
import { createDialer, type Purpose } from '../../../../api/http/dialer.ts';
import { certificatePem, createCertificate } from '../../../../api/pki/certificate.ts';
import { generateKey, type KeyPair, privateKeyPem } from '../../../../api/pki/signing.ts';
import { chainOf } from '../../../certificate-chain.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { assertLinearTime } from '../../../fuzz/growth.ts';
import { until } from '../../../until.ts';

const times = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 };
let keys: KeyPair;
before(async () => {
  keys = await generateKey('ecdsa');
});

const numberOf = (text = ''): bigint => BigInt(`0x${Buffer.from(text, 'base64url').toString('hex')}`);
const textOf = (value: bigint): string => {
  const digits = value.toString(16);
  return Buffer.from(digits.padStart(digits.length + (digits.length % 2), '0'), 'hex').toString('base64url');
};

function inverse(value: bigint, modulus: bigint): bigint | undefined {
  let [a, b, x, y] = [value % modulus, modulus, 1n, 0n];
  while (b > 0n) [a, b, x, y] = [b, a % b, y, x - (a / b) * y];
  return a === 1n ? ((x % modulus) + modulus) % modulus : undefined;
}

/** Returns a valid RSA pair whose public exponent has almost as many bits as its modulus. */
function slowPair(): { readonly publicKey: KeyObject; readonly privateKey: KeyObject } {
  const jwk = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });
  const [p, q] = [numberOf(jwk.p), numberOf(jwk.q)];
  const order = (p - 1n) * (q - 1n);
  let e = (1n << 2000n) + 1n;
  let d = inverse(e, order);
  while (d === undefined) d = inverse((e += 2n), order);
  const key: JsonWebKeyInput['key'] = {
    ...jwk,
    e: textOf(e),
    d: textOf(d),
    dp: textOf(d % (p - 1n)),
    dq: textOf(d % (q - 1n)),
  };
  const privateKey = createPrivateKey({ key, format: 'jwk' });
  return { privateKey, publicKey: createPublicKey(privateKey) };
}

/** What every request ends with. */
const END = '.';

/** Starts a TLS server. `shake` resolves to whether a handshake of a client with this chain is completed. */
async function serving(t: TestContext) {
  const clock = new FakeClock();
  const cert = certificatePem(
    createCertificate({ subject: { commonName: 's' }, publicKey: keys.publicKey, ...times }, keys),
  );
  const key = privateKeyPem(keys.privateKey);
  /** The address of the client and the number of its bytes, for each connection. */
  const seen: string[] = [];
  const limits = { requestCert: true, rejectUnauthorized: false, handshakeTimeout: 1000 };
  const server = createServer({ key, cert, ...limits }, (socket) => {
    const { remoteAddress } = socket;
    let bytes = 0;
    socket.on('error', () => undefined);
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (chunk.at(-1) !== END.charCodeAt(0)) return;
      seen.push(`${remoteAddress} ${bytes}`.replace('::ffff:', ''));
      socket.end('hello');
    });
  });
  server.on('tlsClientError', (_error, socket) => socket.destroy());
  new CostlyHandshakes({ clock, logger: silentLogger }).follow(server);
  await new Promise<void>((resolve) => server.listen(0, resolve));
  const { port } = server.address() as AddressInfo;
  t.after(() => server.close());
  const shake = async (
    chain: string,
    { localAddress = '127.0.0.1', to = port, request = '' } = {},
  ): Promise<boolean> => {
    const socket = connect({
      ...{ host: '127.0.0.1', port: to, localAddress, rejectUnauthorized: false },
      ...(chain === '' ? {} : { cert: chain, key }),
    });
    socket.on('error', () => undefined);
    socket.end(request + END);
    let text = '';
    socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
    await new Promise((resolve) => socket.on('close', resolve));
    return text === 'hello';
  };
  return { clock, port, shake, seen };
}

/** A server whose handshakes never complete, and the numbers of the connections whose handshakes began. */
function silentServer() {
  const server = new EventEmitter();
  const begun: number[] = [];
  server.on('connection', ({ remotePort }: { remotePort: number }) => begun.push(remotePort));
  new CostlyHandshakes({ clock: new FakeClock(), logger: silentLogger }).follow(server as TlsServer);
  const open = (remotePort: number, remoteAddress: string): EventEmitter => {
    const socket = Object.assign(new EventEmitter(), { remoteAddress, remotePort, bytesRead: 0 });
    server.emit('connection', socket);
    return socket;
  };
  return { open, begun };
}

describe('connections that wait for the handshakes of others', () => {
  it('begin in the order of their arrival, those of each client by themselves', () => {
    const { open, begun } = silentServer();
    const own = [1, 2, 3, 4].map((port) => open(port, '10.0.0.1'));
    open(5, '10.0.0.2');
    assert.deepEqual(begun, [1, 2, 5]);
    own[0]?.emit('close');
    own[3]?.emit('close');
    own[1]?.emit('close');
    assert.deepEqual(begun, [1, 2, 5, 3]);
  });

  it('are begun in the place of those that end, also where all clients together have too many', () => {
    const { open, begun } = silentServer();
    const first = Array.from({ length: 8 }, (_, at) => open(at, `10.0.0.${at >> 1}`));
    const later = [8, 9, 10].map((port) => open(port, `10.0.1.${port}`));
    assert.equal(begun.length, 8);
    first[0]?.emit('close');
    assert.deepEqual(begun.slice(8), [8]);
    later[0]?.emit('close');
    assert.deepEqual(begun.slice(8), [8, 9]);
  });

  for (const [what, addressOf] of [
    ['one client', () => '10.0.0.1'],
    ['many clients', (at: number) => `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`],
  ] as const)
    it(`take time that grows with their number if they are those of ${what}`, async () => {
      const run = (size: number): void => {
        const { open, begun } = silentServer();
        const sockets = new Map(Array.from({ length: size }, (_, at) => [at, open(at, addressOf(at))]));
        for (let at = 0; at < size; at++) sockets.get(begun[at] ?? -1)?.emit('close');
        assert.equal(begun.length, size);
      };
      await assertLinearTime(run, { minBytes: 1_000, maxBytes: 8_000, noticeableMs: 400 });
    });
});

describe('a client whose TLS handshakes cost much', () => {
  it('is limited to short handshakes for a minute after two of them, and others are not', async (t) => {
    const { clock, shake } = await serving(t);
    const long = chainOf(60, keys, keys);
    assert.deepEqual([await shake(long), await shake(long), await shake(long)], [true, true, false]);
    assert.equal(await shake(long, { localAddress: '127.0.0.2' }), true);
    await clock.advance(61_000);
    assert.equal(await shake(long), true);
  });

  it('does not keep out others behind its address, whose addresses and requests are known', async (t) => {
    const { shake, seen } = await serving(t);
    const long = chainOf(60, keys, keys);
    assert.deepEqual([await shake(long), await shake(long), await shake(long)], [true, true, false]);
    const request = 'x'.repeat(200_000);
    for (const chain of [
      '',
      chainOf(1, keys, keys),
      chainOf(2, keys, generateKeyPairSync('rsa', { modulusLength: 2048 })),
    ])
      for (const sent of ['', request]) {
        assert.equal(await shake(chain, { request: sent }), true);
        assert.equal(seen.at(-1), `127.0.0.1 ${sent.length + 1}`);
      }
  });

  it('is limited as well if each of its costly handshakes has another address', async (t) => {
    const { shake } = await serving(t);
    const long = chainOf(60, keys, keys);
    const results: boolean[] = [];
    for (let at = 1; at <= 17; at++) results.push(await shake(long, { localAddress: `127.0.1.${at}` }));
    assert.deepEqual(results, [...Array.from({ length: 16 }, () => true), false]);
    assert.equal(await shake(chainOf(1, keys, keys), { localAddress: '127.0.2.1' }), true);
  });

  it('has two handshakes with long chains at once, because chains that arrive together are verified before any is judged', async (t) => {
    const { shake } = await serving(t);
    const long = chainOf(60, keys, keys);
    const results = await Promise.all(Array.from({ length: 12 }, () => shake(long)));
    assert.ok(results.filter(Boolean).length <= 2, String(results));
    assert.equal(results.includes(true), true);
    const others = Array.from({ length: 12 }, () => shake(chainOf(1, keys, keys), { localAddress: '127.0.0.2' }));
    assert.deepEqual(new Set(await Promise.all(others)), new Set([true]));
  });

  it('makes others wait half a second if it holds handshakes open, and they are served then', async (t) => {
    const { clock, port, shake } = await serving(t);
    const held = await Promise.all(
      Array.from({ length: 2 }, async () => {
        const socket = connectTcp(port, '127.0.0.1').on('error', () => undefined);
        await once(socket, 'connect');
        return socket;
      }),
    );
    const chain = chainOf(1, keys, keys);
    const other = shake(chain);
    assert.equal(await shake(chain, { localAddress: '127.0.0.2' }), true);
    await until('a connection that waits', () => (clock.pendingTimers > 0 ? true : undefined));
    await clock.advance(500);
    assert.equal(await other, true);
    for (const socket of held) socket.destroy();
  });

  it('is known by keys in its chain that verify slowly', async (t) => {
    const { shake } = await serving(t);
    const slow = chainOf(6, keys, slowPair());
    assert.deepEqual([await shake(slow), await shake(slow), await shake(slow)], [true, true, false]);
    assert.equal(await shake(''), true);
  });

  it('is known by a long chain also if it does not complete the handshake', async (t) => {
    const { port, shake } = await serving(t);
    // A proxy that withholds the end of what the client sends after its certificate.
    const proxy = createTcpServer((client) => {
      const upstream = connectTcp({ port, host: '127.0.0.1', localAddress: '127.0.0.3' });
      let sent = 0;
      client.on('error', () => undefined);
      upstream.on('error', () => undefined);
      client.on('data', (chunk: Buffer) => {
        const isFirst = sent === 0;
        sent += chunk.length;
        if (isFirst) upstream.write(chunk);
        else if (sent < 5000) upstream.write(chunk);
        else upstream.end(chunk.subarray(0, chunk.length - 60));
      });
      upstream.pipe(client);
      upstream.on('close', () => client.destroy());
    });
    await new Promise<void>((resolve) => proxy.listen(0, resolve));
    t.after(() => proxy.close());
    const { port: to } = proxy.address() as AddressInfo;
    const long = chainOf(24, keys, keys);
    for (let attempt = 0; attempt < 2; attempt++) await shake(long, { to });
    assert.equal(await shake(long, { localAddress: '127.0.0.3' }), false);
    assert.equal(await shake(long), true);
  });

  it('is not one that sends a large request together with the end of its handshake', async (t) => {
    const { shake } = await serving(t);
    const request = 'x'.repeat(60_000);
    for (let attempt = 0; attempt < 3; attempt++) assert.equal(await shake(chainOf(2, keys, keys), { request }), true);
    for (let attempt = 0; attempt < 3; attempt++) assert.equal(await shake('', { request }), true);
  });

  it('is not one with an ordinary chain, or one that gives up a handshake', async (t) => {
    const { port, shake } = await serving(t);
    const rsa = generateKeyPairSync('rsa', { modulusLength: 4096 });
    for (let attempt = 0; attempt < 3; attempt++) {
      assert.equal(await shake(chainOf(3, keys, rsa)), true);
      const socket = connectTcp(port, '127.0.0.1');
      await once(socket, 'connect');
      socket.end('not a handshake');
      socket.resume();
      socket.on('error', () => undefined);
      await once(socket, 'close');
    }
    assert.equal(await shake(chainOf(1, keys, keys)), true);
  });
});

describe('a server whose TLS handshake costs much', () => {
  /** Starts a server with this chain. `ask` resolves to the status of a response, or to the reason of a failure. */
  async function asking(t: TestContext, chain: string) {
    const clock = new FakeClock();
    const server = createHttpsServer({ key: privateKeyPem(keys.privateKey), cert: chain }, (_request, response) =>
      response.end('ok'),
    );
    await new Promise<void>((resolve) => server.listen(0, resolve));
    t.after(() => server.close());
    const { port } = server.address() as AddressInfo;
    const dialer = createDialer({ clock, connectTimeoutsMs: { probe: 2000 } });
    const ask = (given: { purpose?: Purpose; to?: number; host?: string; owner?: string } = {}): Promise<string> =>
      new Promise((resolve) => {
        const { purpose = 'probe', to = port, host = '127.0.0.1', ...owner } = given;
        const options = { purpose, secure: true, host, port: to, path: '/', ...owner, rejectUnauthorized: false };
        try {
          const request = dialer.request({ ...options, agent: false }, (response) => {
            response.resume().on('end', () => resolve(String(response.statusCode)));
          });
          request.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
          request.end();
        } catch (error) {
          resolve((error as Error).name);
        }
      });
    return { clock, port, ask };
  }

  it('is called once in ten minutes, and others are called', async (t) => {
    const { clock, ask } = await asking(t, chainOf(6, keys, slowPair()));
    assert.deepEqual([await ask(), await ask()], ['200', 'CostlyServerError']);
    assert.equal(await ask({ host: '127.0.0.2' }), '200');
    assert.equal(await ask({ purpose: 'configured' }), '200');
    await clock.advance(601_000);
    assert.equal(await ask(), '200');
  });

  it('counts for the pod whose probe calls it, not for others that are probed at the same host', async (t) => {
    const { ask } = await asking(t, chainOf(6, keys, slowPair()));
    const other = await asking(t, chainOf(1, keys, keys));
    assert.deepEqual([await ask({ owner: 'a' }), await ask({ owner: 'a' })], ['200', 'CostlyServerError']);
    assert.equal(await ask({ owner: 'a', host: '127.0.0.2', to: other.port }), 'CostlyServerError');
    assert.equal(await ask({ owner: 'b', to: other.port }), '200');
  });

  it('is known by a long chain also if it does not complete the handshake', async (t) => {
    const { port, ask } = await asking(t, chainOf(6, keys, slowPair()));
    /** Starts a proxy that breaks off, or changes, the end of what the server sends with its certificate. */
    const proxied = async (how: 'cut' | 'changed' | 'reset'): Promise<number> => {
      const proxy = createTcpServer((client) => {
        const upstream = connectTcp(port, '127.0.0.1');
        let sent = 0;
        for (const socket of [client, upstream]) socket.on('error', () => undefined);
        client.pipe(upstream);
        client.on('close', () => upstream.destroy());
        upstream.on('data', (chunk: Buffer) => {
          sent += chunk.length;
          if (sent < 5000) client.write(chunk);
          else if (how === 'cut') client.end(chunk.subarray(0, chunk.length - 40));
          else if (how === 'reset') client.write(chunk.subarray(0, chunk.length - 40), () => client.resetAndDestroy());
          else client.write(chunk.fill(1, chunk.length - 10));
        });
      });
      await new Promise<void>((resolve) => proxy.listen(0, resolve));
      t.after(() => proxy.close());
      return (proxy.address() as AddressInfo).port;
    };
    let at = 1;
    for (const how of ['cut', 'changed', 'reset'] as const) {
      const to = await proxied(how);
      const host = `127.0.0.${(at += 1)}`;
      assert.notEqual(await ask({ to, host }), '200', how);
      assert.equal(await ask({ to, host }), 'CostlyServerError', how);
    }
    const to = await proxied('cut');
    assert.notEqual(await ask({ to, host: 'localhost' }), '200');
    assert.equal(await ask({ to, host: 'localhost' }), 'CostlyServerError');
  });

  it('is not one that does not answer, does not exist, or has an ordinary chain', async (t) => {
    const { ask } = await asking(t, chainOf(3, keys, generateKeyPairSync('rsa', { modulusLength: 4096 })));
    const silent = createTcpServer((socket) => socket.on('error', () => undefined));
    await new Promise<void>((resolve) => silent.listen(0, resolve));
    t.after(() => silent.close());
    const { port: to } = silent.address() as AddressInfo;
    assert.deepEqual(
      [await ask({ to }), await ask({ to: 1 }), await ask(), await ask()],
      [...['dial timed out', 'ECONNREFUSED', '200', '200']],
    );
  });
});
