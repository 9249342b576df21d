/** Tests that a host which answers `orchlet join` in place of the cluster harms neither the command nor the terminal. */
import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { it, type TestContext } from 'node:test';
import { selfSigned } from '../../../fakes/fake-server.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { until } from '../../../until.ts';
import { orchlet, type Ran } from '../command-run.ts';

type Answer = (response: ServerResponse, request: IncomingMessage) => void;
const HASH = ['--discovery-token-ca-cert-hash', `sha256:${'0'.repeat(64)}`];
const TOKEN = ['--token', 'abcdef.0123456789abcdef', ...HASH];

async function listen(t: TestContext, answer: Answer): Promise<string> {
  const server = createServer(await selfSigned(), (request, response) => answer(response, request));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function joins(t: TestContext, answer: Answer): Promise<Ran> {
  return orchlet(['join', await listen(t, answer), ...TOKEN]);
}

const json = (value: unknown, status = 200): Answer => {
  return (response) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
};

for (const status of [200, 500]) {
  it(`a server that answers ${status} without an end is left after a megabyte`, async (t) => {
    let sent = 0;
    const { code, stderr } = await joins(t, (response) => {
      response.writeHead(status, { 'content-type': 'application/json' });
      const chunk = Buffer.alloc(1 << 16, 0x20);
      const more = (): void => {
        while (!response.destroyed && sent < 64 << 20) {
          sent += chunk.length;
          if (!response.write(chunk)) return void response.once('drain', more);
        }
        response.end('{}');
      };
      more();
    });
    assert.equal(code, 1);
    assert.match(stderr, /could not be read from .*: the response has more than 1048576 bytes\n$/);
    assert.ok(sent < 32 << 20, `${sent} bytes were taken`);
  });
}

it('a server that answers byte by byte is left after half a minute', async (t) => {
  const clock = new FakeClock();
  let opened = false;
  const url = await listen(t, (response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).write('{');
    opened = true;
  });
  const running = orchlet(['join', url, ...TOKEN], { clock });
  await until('the request', () => opened);
  await clock.advance(30_000);
  const { code, stderr } = await running;
  assert.equal(code, 1);
  assert.match(stderr, /did not answer within 30 s/);
});

for (const [what, value] of Object.entries({
  nothing: null,
  'a number': 7,
  'data that is a list': { data: ['kubeconfig'] },
  'texts that are numbers': { data: { kubeconfig: 1, 'jws-kubeconfig-abcdef': 2 } },
})) {
  it(`${what} in place of the description of the cluster is refused in one line`, async (t) => {
    const { code, stderr } = await joins(t, json(value));
    assert.equal(code, 1);
    assert.match(stderr, /^orchlet: [^\n]*(could not be read|does not know the token)[^\n]*\n$/);
  });
}

it('a message of the server moves no cursor of the terminal, and sends it no commands', async (t) => {
  const message = 'forbidden\u001b[2J\u001b]0;title\u0007\r\u009b2Kjoined';
  const { stderr } = await joins(t, json({ kind: 'Status', code: 403, message, reason: 'Forbidden' }, 403));
  assert.match(stderr, /forbidden\\x1b\[2J\\x1b\]0;title\\x07\\x0d\\x9b2Kjoined/);
  assert.doesNotMatch(stderr.replace(/\n$/, ''), /\p{Cc}/u);
});
