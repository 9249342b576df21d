import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import type { Dialer } from '../../../../../api/http/dialer.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import {
  createAgentSummaries,
  parseSummary,
} from '../../../../../controlplane/controllers/metrics-api/agent-summaries.ts';

const usage = (nanoCores: number | undefined): object => ({
  cpu: { time: '2026-01-02T03:04:05Z', ...(nanoCores === undefined ? {} : { usageNanoCores: nanoCores }) },
  memory: { workingSetBytes: 4096 },
});

describe("an agent's summary", () => {
  it('gives the usage of the node, and of each pod by its uid', () => {
    const summary = parseSummary({
      node: usage(5),
      pods: [{ podRef: { uid: 'u' }, containers: [{ name: 'main', ...usage(7) }] }],
    });
    const measured = { time: '2026-01-02T03:04:05Z', workingSetBytes: 4096 };
    assert.deepEqual(summary.node, { ...measured, nanoCores: 5 });
    assert.deepEqual(summary.pods.get('u'), { containers: [{ name: 'main', ...measured, nanoCores: 7 }] });
  });

  it('gives none of a pod while one of its containers has no rate yet', () => {
    const { pods } = parseSummary({
      node: usage(5),
      pods: [
        {
          podRef: { uid: 'u' },
          containers: [
            { name: 'old', ...usage(7) },
            { name: 'new', ...usage(undefined) },
          ],
        },
      ],
    });
    assert.equal(pods.size, 0);
  });

  for (const [what, summary] of [
    ['pods that are no list', { pods: 5 }],
    ['pods that are null', { pods: [null, 5, []] }],
    ['containers that are no list', { pods: [{ podRef: { uid: 'u' }, containers: { a: usage(1) } }] }],
    [
      'a container with a name that is no text',
      { pods: [{ podRef: { uid: 'u' }, containers: [{ name: {}, ...usage(1) }] }] },
    ],
    ['a uid that is no text', { pods: [{ podRef: { uid: 7 }, containers: [{ name: 'c', ...usage(1) }] }] }],
    [
      'usage that is no number',
      { node: { cpu: { time: '2026-01-02T03:04:05Z', usageNanoCores: '1' }, memory: { workingSetBytes: 1 } } },
    ],
    ['usage below zero', { node: usage(-1) }],
    ['a time that is none', { node: { cpu: { time: { a: 1 }, usageNanoCores: 1 }, memory: { workingSetBytes: 1 } } }],
    ['nothing but null', null],
  ] as const)
    it(`with ${what} gives none of it`, () =>
      assert.deepEqual(parseSummary(summary), { node: undefined, pods: new Map() }));

  it('may lack everything', () => assert.deepEqual(parseSummary({}), { node: undefined, pods: new Map() }));
});

describe('a hostile agent', () => {
  const summaryFrom = async (answer: (response: ServerResponse) => void, t: TestContext, timeoutMs = 300) => {
    const server = createServer((_request, response) => answer(response)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => server.close().closeAllConnections());
    const failures: unknown[] = [];
    const summaries = createAgentSummaries({
      clock: new FakeClock(),
      dialer: { request } as unknown as Dialer,
      onFailure: (_node, error) => void failures.push(error),
      credentials: () => ({ cert: '', key: '' }),
      timeoutMs,
    });
    const { port } = server.address() as AddressInfo;
    const summary = await summaries.of('n', { secure: false, host: '127.0.0.1', port });
    return { summary, failure: String(failures[0]) };
  };

  it('that sends its summary byte by byte is given up at the timeout', async (t) => {
    const { summary, failure } = await summaryFrom((response) => {
      const timer = setInterval(() => response.write(' '), 50);
      response.on('close', () => clearInterval(timer));
    }, t);
    assert.equal(summary, undefined);
    assert.match(failure, /did not answer within 0.3 s/);
  });

  it('that sends a summary of many megabytes has none', async (t) => {
    const { summary, failure } = await summaryFrom(
      (response) => response.end(`[${'[],'.repeat(2_000_000)}[]]`),
      t,
      60_000,
    );
    assert.equal(summary, undefined);
    assert.match(failure, /more than 4194304 bytes/);
  });
});
