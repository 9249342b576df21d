/** Tests `orchlet migrate` with an etcd, or another server in its place, that returns invalid pages. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { buildCodecs } from '../../../../../api/grpc/codec.ts';
import { connectEtcd } from '../../../../../controlplane/storage/etcd/etcd-client.ts';
import { ETCD_MESSAGES, etcdTarget } from '../../../../../controlplane/storage/etcd/etcd-interface.ts';

interface Answer {
  readonly revision?: number;
  readonly more?: boolean;
  readonly keys: readonly (readonly [key: string, revision?: number])[];
}

/** Runs an etcd that answers each request for a range with `answer`. */
async function withEtcd(answer: Answer, use: (url: string) => Promise<void>): Promise<void> {
  const codec = buildCodecs(ETCD_MESSAGES);
  const server = new Server();
  const value = {
    header: { revision: answer.revision ?? 9 },
    kvs: answer.keys.map(([key, revision = 5]) => ({
      key: Buffer.from(key),
      value: Buffer.from('{}'),
      createRevision: revision,
      modRevision: revision,
    })),
    more: answer.more ?? false,
  };
  const range = {
    path: '/etcdserverpb.KV/Range',
    requestStream: false,
    responseStream: false,
    requestSerialize: (request: object) => codec('RangeRequest').encode(request),
    requestDeserialize: (bytes: Buffer) => codec('RangeRequest').decode(bytes),
    responseSerialize: (response: object) => codec('RangeResponse').encode(response),
    responseDeserialize: (bytes: Buffer) => codec('RangeResponse').decode(bytes),
  } as const;
  server.addService(
    { range },
    { range: (_call: unknown, done: (error: null, response: object) => void) => done(null, value) },
  );
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    ),
  );
  try {
    await use(`http://127.0.0.1:${port}`);
  } finally {
    server.forceShutdown();
  }
}

async function keysOf(url: string): Promise<readonly string[]> {
  const etcd = await connectEtcd({ servers: [url], tls: {} });
  try {
    const keys: string[] = [];
    for await (const page of etcd.pages('/registry/')) {
      keys.push(...page.map(({ key }) => key));
      assert.ok(keys.length < 100, 'the pages have no end');
    }
    return keys;
  } finally {
    etcd.close();
  }
}

describe('the pages of an etcd', () => {
  it('are read to the end if they are in order', () =>
    withEtcd({ keys: [['/registry/a'], ['/registry/b', 9]] }, async (url) =>
      assert.deepEqual(await keysOf(url), ['/registry/a', '/registry/b']),
    ));

  for (const [what, answer] of [
    ['repeat the same keys for ever', { more: true, keys: [['/registry/a'], ['/registry/b']] }],
    ['have a key twice', { keys: [['/registry/a'], ['/registry/a']] }],
    ['have keys of another range', { keys: [['/registry0']] }],
    ['have a key that was written after their revision', { keys: [['/registry/a', 10]] }],
    ['have a key without a revision', { keys: [['/registry/a', 0]] }],
    ['have revisions that no number represents exactly', { revision: 2 ** 60, keys: [['/registry/a']] }],
  ] as const satisfies readonly (readonly [string, Answer])[]) {
    it(`are refused in one line if they ${what}`, () =>
      withEtcd(answer, (url) =>
        assert.rejects(keysOf(url), {
          name: 'EtcdError',
          message: /keys that were not requested|impossible revisions/,
        }),
      ));
  }
});

it("a server's URL without a port has etcd's port", () =>
  assert.rejects(connectEtcd({ servers: ['http://127.0.0.1', 'http://[::1]'], tls: {} }), {
    name: 'EtcdError',
    message: /127\.0\.0\.1:2379.*\[?::1\]?:2379/,
  }));

it('the port in the URL of a server counts, also if it is the default of the scheme', () =>
  assert.deepEqual(
    ['https://etcd-1:443', 'http://[::1]:80/', 'HTTPS://10.0.0.1:2380', 'https://etcd-1', 'ftp://etcd-1'].map(
      etcdTarget,
    ),
    [
      { target: 'etcd-1:443', isTls: true },
      { target: '[::1]:80', isTls: false },
      { target: '10.0.0.1:2380', isTls: true },
      { target: 'etcd-1:2379', isTls: true },
      undefined,
    ],
  ));
