/** Tests which addresses are refused for each purpose of a connection, also behind names, redirects and reused connections. */
import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { after, before, test } from 'node:test';
import { addressClasses } from '../../../../api/http/address-class.ts';
import {
  createDialer,
  type Dialer,
  DialRefusedError,
  type Purpose,
  PURPOSES,
  type ResolveName,
  redirectTarget,
} from '../../../../api/http/dialer.ts';

const ALL: readonly Purpose[] = Object.keys(PURPOSES) as Purpose[];
let server: Server;
let port: number;
let calls = 0;

before(async () => {
  server = createServer((request, response) => {
    calls += 1;
    if (request.url === '/long-headers') response.setHeader('x-long', 'a'.repeat(500_000));
    response.end('answer');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

interface Asked {
  readonly purpose: Purpose;
  readonly host: string;
  readonly name?: string;
  readonly port?: number;
  readonly path?: string;
}

/** Resolves to the status of the response, or to the reason of a failure. */
function ask(dialer: Dialer, asked: Asked): Promise<number | string> {
  return new Promise((resolve) => {
    const failed = (error: unknown): void =>
      resolve(error instanceof DialRefusedError ? 'refused' : ((error as NodeJS.ErrnoException).code ?? String(error)));
    try {
      const request = dialer.request(
        { port, path: '/', ...asked, secure: false, agent: false },
        (response: IncomingMessage) => {
          response.resume();
          resolve(response.statusCode ?? 0);
        },
      );
      request.on('error', failed);
      request.end();
    } catch (error) {
      failed(error);
    }
  });
}

test('responses with headers of hundreds of kilobytes are read', async () => {
  assert.equal(await ask(createDialer(), { purpose: 'probe', host: '127.0.0.1', path: '/long-headers' }), 200);
});

const LOOPBACK_ALLOWED: readonly Purpose[] = ['webhook-url', 'probe', 'configured'];
const LOOPBACKS = ['127.0.0.1', 'localhost', '127.1', '2130706433', '0x7f000001', '[::ffff:127.0.0.1]'];
for (const purpose of ALL) {
  const allowed = LOOPBACK_ALLOWED.includes(purpose);
  test(`${purpose} ${allowed ? 'reaches' : 'refuses'} loopback in every spelling`, async () => {
    const dialer = createDialer();
    for (const host of LOOPBACKS) {
      const before = calls;
      assert.equal(await ask(dialer, { purpose, host }), allowed ? 200 : 'refused', host);
      assert.equal(calls - before, allowed ? 1 : 0, host);
    }
  });
}

for (const purpose of ALL.filter((one) => one !== 'configured')) {
  test(`${purpose} refuses the metadata servers of clouds`, async () => {
    const dialer = createDialer();
    for (const host of ['169.254.169.254', 'fd00:ec2::254', '100.100.100.200', '::ffff:169.254.169.254'])
      assert.equal(await ask(dialer, { purpose, host }), 'refused', host);
  });
}

test('a declared target may be on loopback, no other, and never the program itself', async () => {
  const dialer = createDialer({ loopbackTargets: new Set(['node/here']), isOwn: (_address, at) => at !== port });
  assert.equal(await ask(dialer, { purpose: 'kubelet', host: '127.0.0.1', name: 'node/here' }), 200);
  assert.equal(await ask(dialer, { purpose: 'kubelet', host: '127.0.0.1', name: 'node/there' }), 'refused');
  assert.equal(await ask(dialer, { purpose: 'kubelet', host: '127.0.0.1' }), 'refused');
  assert.equal(await ask(dialer, { purpose: 'kubelet', host: '127.0.0.1', name: 'node/here', port: 1 }), 'refused');
  assert.equal(await ask(dialer, { purpose: 'kubelet', host: 'localhost', name: 'node/here', port: 1 }), 'refused');
  assert.equal(await ask(dialer, { purpose: 'kubelet', host: '169.254.169.254', name: 'node/here' }), 'refused');
});

for (const purpose of ['kubelet', 'proxy', 'aggregation'] as const) {
  test(`${purpose} never connects to the program itself`, async () => {
    const dialer = createDialer({ isOwn: (address, at) => address === '10.11.12.13' && at === port });
    assert.equal(await ask(dialer, { purpose, host: '10.11.12.13' }), 'refused');
  });
}

/** Returns a name server with these answers, one after another. The last one is repeated. */
function answering(...answers: readonly (readonly string[])[]) {
  const asked: string[] = [];
  const resolve: ResolveName = (hostname, _options, callback) => {
    const found = answers[Math.min(asked.push(hostname), answers.length) - 1] ?? [];
    queueMicrotask(() =>
      callback(
        null,
        found.map((address) => ({ address, family: 4 })),
      ),
    );
  };
  return { asked, resolve };
}

test('a name is resolved once, and the checked address is the one that is dialed', async () => {
  const { asked, resolve } = answering(['127.0.0.1'], ['169.254.169.254']);
  const dialer = createDialer({ resolve });
  assert.equal(await ask(dialer, { purpose: 'webhook-url', host: 'rebinding.example' }), 200);
  assert.deepEqual(asked, ['rebinding.example']);
  assert.equal(await ask(dialer, { purpose: 'webhook-url', host: 'rebinding.example' }), 'refused');
});

test('a name of which one address is refused is refused whole', async () => {
  const { resolve } = answering(['192.0.2.1', '127.0.0.1']);
  assert.equal(await ask(createDialer({ resolve }), { purpose: 'proxy', host: 'mixed.example' }), 'refused');
});

test('TCP connections are checked as requests are', async () => {
  const dialer = createDialer();
  assert.throws(() => dialer.connect({ purpose: 'probe', host: '169.254.169.254', port: 80 }), DialRefusedError);
  assert.throws(() => dialer.check({ purpose: 'proxy', host: '::1', port: 80 }), DialRefusedError);
  const outcome = await new Promise((resolve) => {
    const socket = dialer.connect({ purpose: 'proxy', host: 'localhost', port });
    socket.once('error', resolve);
    socket.once('connect', () => resolve('connected'));
  });
  assert.ok(outcome instanceof DialRefusedError);
});

const from = new URL('https://config.example/pods');
for (const [purpose, location, expected] of [
  ['proxy', '/elsewhere', undefined],
  ['kubelet', 'https://config.example/pods', undefined],
  ['webhook-url', '/elsewhere', undefined],
  ['configured', '/elsewhere', undefined],
  ['probe', '/elsewhere', 'https://config.example/elsewhere'],
  ['probe', 'http://config.example:8080/x', 'http://config.example:8080/x'],
  ['probe', 'https://other.example/', undefined],
  ['probe', '//other.example/', undefined],
  ['probe', 'file:///etc/passwd', undefined],
  ['manifest-redirect', 'https://other.example/', 'https://other.example/'],
  ['manifest-redirect', 'http://config.example/pods', undefined],
  ['manifest-redirect', 'ftp://other.example/', undefined],
  ['manifest-redirect', 'http://[', undefined],
] as const) {
  test(`${purpose} ${expected === undefined ? 'does not follow' : 'follows'} a redirect to ${location}`, () =>
    assert.equal(redirectTarget(purpose, from, location)?.href, expected));
}

test('every purpose that others choose addresses for refuses what leads nowhere else', () => {
  for (const purpose of ['kubelet', 'proxy', 'aggregation', 'webhook-service', 'issuer-keys'] as const)
    for (const address of ['0.0.0.0', '127.0.0.1', '169.254.1.1', 'ff02::1'])
      assert.ok(
        addressClasses(address).some((one) => (PURPOSES[purpose].refuses as readonly string[]).includes(one)),
        `${purpose} ${address}`,
      );
});

test('a server that sends its handshake byte by byte is given up when the time for connecting is over', async () => {
  const drips = new Set<NodeJS.Timeout>();
  const dripping = createTcpServer((socket) => {
    socket.on('error', () => undefined);
    // The beginning of a long record of TLS.
    socket.write(Buffer.from([0x16, 0x03, 0x03, 0x40, 0x00]));
    drips.add(setInterval(() => socket.write(Buffer.from([0])), 20));
  });
  await new Promise<void>((resolve) => dripping.listen(0, '127.0.0.1', resolve));
  const own = (dripping.address() as AddressInfo).port;
  try {
    const dialer = createDialer({ connectTimeoutsMs: { configured: 300 } });
    const failure = await new Promise<Error>((resolve, reject) => {
      const options = { purpose: 'configured', host: '127.0.0.1', port: own, secure: true, path: '/' } as const;
      const request = dialer.request({ ...options, agent: false }, () => reject(new Error('it answered')));
      const late = setTimeout(() => request.destroy(new Error('still connecting')), 5000);
      request.on('error', (error) => {
        clearTimeout(late);
        resolve(error);
      });
      request.end();
    });
    assert.equal(failure.message, 'dial timed out');
  } finally {
    for (const drip of drips) clearInterval(drip);
    dripping.close();
  }
});
