/**
 * Tests the server's pages for administrators: running components (`/statusz`, `/flagz`, `/metrics/slis`), checkpoints, service
 * logs, and verbosity.
 */
import assert from 'node:assert/strict';
import { chmod, mkdir, readdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { effectiveOptions } from '../../../../agent/options/config/effective-options.ts';
import { flagz } from '../../../../agent/options/config/flagz.ts';
import type { PodHost, RequestedContainer } from '../../../../agent/server/pod-host.ts';
import { RuntimeError } from '../../../../agent/runtime/runtime.ts';
import type { ContainerId } from '../../../../agent/runtime/runtime-identity.ts';
import { negotiate } from '../../../../api/http/zpages.ts';
import { createLogger } from '../../../../api/component/logging.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { type ServerUnderTest, startServerUnderTest } from './server-under-test.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const pod = {
  metadata: { name: 'p', namespace: 'ns', uid: 'u' },
  spec: { containers: [{ name: 'c' }, { name: 'dead' }] },
};
let problem = '';
const host = {
  syncLoopHealth: () => problem,
  devicePluginHealth: () => '',
  podByName: (namespace: string, name: string) => (namespace === 'ns' && name === 'p' ? pod : undefined),
  runningContainer: async ({ container }: RequestedContainer) =>
    container === 'dead' ? undefined : ('id' as ContainerId),
} as unknown as PodHost;

describe('/statusz and /flagz', () => {
  let server: ServerUnderTest;
  const nowMs = Date.UTC(2026, 0, 2, 3, 4, 5);
  before(async () => {
    const effective = await effectiveOptions({
      values: { maxPods: 20, clusterDns: ['10.0.0.10'], syncFrequency: 90_000, manifestUrlHeader: ['A:secret'] },
      given: new Set(['maxPods', 'clusterDns', 'syncFrequency', 'manifestUrlHeader']),
    });
    server = await startServerUnderTest({
      host,
      zpages: {
        statusz: () => ({ startedAtMs: nowMs - 3_725_000, nowMs, version: '1.36.2' }),
        flagz: () => flagz(effective),
      },
    });
  });
  after(() => server.close());

  it('are text without an Accept header', async () => {
    const { status, type, text } = await server.ask('GET /statusz');
    assert.deepEqual([status, type], [200, 'text/plain; charset=utf-8']);
    assert.match(text, /^\nkubelet statusz\nWarning: This endpoint is not meant to be machine parseable/);
    assert.match(text, /\n\nStarted: Fri Jan  2 02:02:00 UTC 2026\nUp: 1 hr 02 min 05 sec\nGo version: /);
    assert.match(text, /\nBinary version: 1\.36\.2\nEmulation version: 1\.36\nPaths: \/configz .*\/metrics/);
  });

  it('are objects of config.k8s.io if the Accept header requests them', async () => {
    const accept = 'application/json;v=v1beta1;g=config.k8s.io;as=Statusz';
    const { status, type, text } = await server.ask('GET /statusz', { accept });
    assert.deepEqual([status, type], [200, 'application/json']);
    const { goVersion: _, ...shown } = JSON.parse(text) as Record<string, unknown>;
    // This server does not serve the logs of the node.
    assert.deepEqual(shown, {
      kind: 'Statusz',
      apiVersion: 'config.k8s.io/v1beta1',
      metadata: { name: 'kubelet' },
      startTime: '2026-01-02T02:02:00Z',
      uptimeSeconds: 3725,
      binaryVersion: '1.36.2',
      emulationVersion: '1.36',
      paths: ['/configz', '/debug', '/flagz', '/healthz', '/logs', '/metrics'],
    });
    const yaml = await server.ask('GET /flagz', { accept: 'application/yaml;v=v1alpha1;g=config.k8s.io;as=Flagz' });
    assert.match(yaml.text, /apiVersion: config\.k8s\.io\/v1alpha1\n/);
  });

  it('reject other media types with a Status', async () => {
    const { status, type, text } = await server.ask('GET /flagz', { accept: 'application/json' });
    assert.deepEqual([status, type], [406, 'application/json']);
    assert.equal((JSON.parse(text) as { reason: string }).reason, 'NotAcceptable');
  });

  it('show flags with their value on the command line or their default, and no password', async () => {
    const accept = 'application/json;v=v1beta1;g=config.k8s.io;as=Flagz';
    const { flags } = JSON.parse((await server.ask('GET /flagz', { accept })).text) as {
      flags: Record<string, string>;
    };
    assert.deepEqual(
      ['max-pods', 'cluster-dns', 'sync-frequency', 'manifest-url-header', 'port', 'anonymous-auth', 'node-labels'].map(
        (name) => flags[name],
      ),
      ['20', '[10.0.0.10]', '1m30s', 'CLASSIFIED', '10250', 'true', ''],
    );
    assert.match((await server.ask('GET /flagz')).text, /\nmax-pods=20\n/);
  });

  it('are absent where their gates are off', async () => {
    const plain = await startServerUnderTest({ host });
    try {
      for (const path of ['/statusz', '/flagz']) assert.equal((await plain.ask(`GET ${path}`)).status, 404);
    } finally {
      await plain.close();
    }
  });

  const structured = 'v=v1beta1;g=config.k8s.io;as=Statusz';
  for (const [accept, form] of [
    ['*/*', 'text'],
    ['text/plain;charset=utf-8', 'text'],
    ['text/*', 'text'],
    ['application/xml', undefined],
    ['application/json;v=v1beta1;g=config.k8s.io', undefined],
    [`application/json;v=v9;g=config.k8s.io;as=Statusz, */*`, 'text'],
    [`application/vnd.kubernetes.protobuf;${structured}`, undefined],
    [`text/plain;q=0.5, application/json;${structured}`, 'json'],
    [`application/*;${structured}`, 'json'],
    ['application/json;v=v1beta1;g=config.k8s.io;as=Flagz', undefined],
  ] as const)
    it(`negotiate ${accept}`, () => assert.equal(negotiate(accept, 'Statusz')?.type, form));
});

it('/metrics/slis counts the results of the health checks, until DELETE', async () => {
  const server = await startServerUnderTest({ host });
  try {
    await server.ask('GET /healthz?exclude=log');
    problem = 'ill';
    await server.ask('GET /healthz?exclude=log');
    problem = '';
    const { type, text, startedSeconds } = await server.ask('GET /metrics/slis');
    assert.equal(type, 'text/plain; version=0.0.4; charset=utf-8; escaping=underscores');
    assert.equal(startedSeconds, Math.floor(performance.timeOrigin / 1000));
    assert.match(text, /^kubernetes_healthcheck\{name="ping",type="healthz"\} 1$/m);
    assert.match(text, /^kubernetes_healthcheck\{name="syncloop",type="healthz"\} 0$/m);
    assert.match(text, /^kubernetes_healthchecks_total\{name="ping",status="success",type="healthz"\} 2$/m);
    assert.match(text, /^kubernetes_healthchecks_total\{name="syncloop",status="error",type="healthz"\} 1$/m);
    assert.doesNotMatch(text, /name="log"/);
    assert.equal((await server.ask('DELETE /metrics/slis')).text, 'metrics reset\n');
    assert.equal((await server.ask('GET /metrics/slis')).text, '');
  } finally {
    await server.close();
  }
});

it('PUT /debug/flags/v changes the log verbosity', async () => {
  const verbosity = { level: 0 };
  const lines: string[] = [];
  const logger = (await createLogger({ format: 'text', verbosity, write: (line) => lines.push(line) })).child({
    part: 'x',
  });
  const server = await startServerUnderTest({ host, verbosity });
  try {
    logger.debug({}, 'before');
    const changed = await server.ask('PUT /debug/flags/v', {}, '4');
    assert.deepEqual([changed.status, changed.text], [200, 'successfully set klog.logging.verbosity to 4\n']);
    logger.debug({}, 'after');
    assert.deepEqual(
      lines.map((line) => line.split(' ')[2]),
      ['after'],
    );
    assert.equal((await server.ask('PUT /debug/flags/v', {}, 'x')).status, 400);
    assert.equal((await server.ask('GET /debug/flags/v')).status, 406);
  } finally {
    await server.close();
  }
});

describe('/checkpoint', () => {
  let server: ServerUnderTest;
  let rootDirectory: string;
  let refusal: Error | undefined;
  const asked: unknown[] = [];
  const checkpoint = async (id: ContainerId, archive: string, options: object): Promise<void> => {
    if (refusal !== undefined) throw refusal;
    asked.push(id, options);
    await writeFile(archive, 'state');
  };
  before(async () => {
    rootDirectory = temporaryFolder();
    server = await startServerUnderTest({
      host,
      checkpoint: { runtime: { checkpoint }, rootDirectory, clock: new FakeClock() },
    });
  });
  after(async () => {
    await server.close();
  });

  it('has the runtime write an archive and names it', async () => {
    const { status, text } = await server.ask('POST /checkpoint/ns/p/c?timeout=9');
    const name = 'checkpoint-p_ns-c-2026-01-02T03:04:05Z.tar';
    assert.deepEqual([status, JSON.parse(text)], [200, { items: [join(rootDirectory, 'checkpoints', name)] }]);
    assert.deepEqual(asked, ['id', { timeoutSeconds: 9 }]);
    assert.deepEqual(await readdir(join(rootDirectory, 'checkpoints')), [name]);
  });

  for (const [request, status, text] of [
    ['POST /checkpoint/ns/none/c', 404, 'pod does not exist'],
    ['POST /checkpoint/ns/p/none', 404, 'container none does not exist'],
    ['POST /checkpoint/ns/p/c?timeout=soon', 404, 'cannot parse value of timeout parameter'],
    ['POST /checkpoint/ns/p/dead', 500, 'checkpointing of ns/p/dead failed (container dead not found)'],
    [
      'POST /checkpoint/ns/p/c?timeout=-1',
      500,
      'checkpointing of ns/p/c failed (CheckpointContainer requires the timeout value to be > 0)',
    ],
    ['GET /checkpoint/ns/p/c', 405, '405: Method Not Allowed'],
  ] as const)
    it(`answers ${request} with ${status}`, async () => {
      const answer = await server.ask(request);
      assert.deepEqual([answer.status, answer.text], [status, text]);
    });

  it('reports that the runtime does not support it', async () => {
    refusal = new RuntimeError('unsupported', 'method CheckpointContainer not implemented');
    const answer = await server.ask('POST /checkpoint/ns/p/c');
    const why = 'checkpointing of ns/p/c failed (method CheckpointContainer not implemented)';
    assert.deepEqual([answer.status, answer.text], [500, why]);
  });
});

describe('/logs/?query=', () => {
  let server: ServerUnderTest;
  let directory: string;
  before(async () => {
    directory = temporaryFolder();
    const logs = join(directory, 'log');
    await mkdir(join(logs, 'nginx'), { recursive: true });
    await writeFile(join(logs, 'foo.log'), 'of foo\n');
    await writeFile(join(logs, 'nginx', 'nginx.log'), 'of nginx\n');
    await writeFile(join(directory, 'secret'), 'secret\n');
    await symlink(join(directory, 'secret'), join(logs, 'out'));
    const journalctl = join(directory, 'journalctl');
    await writeFile(journalctl, '#!/bin/sh\nif [ "$1" = --field ]; then echo kubelet.service; else echo "$@"; fi\n');
    await chmod(journalctl, 0o755);
    server = await startServerUnderTest({ host, systemLogs: { directory: logs, queries: true, journalctl } });
  });
  after(async () => {
    await server.close();
  });

  const since = 'sinceTime=2026-01-02T03:04:05%2B01:00';
  for (const [query, status, text] of [
    ['query=kubelet', 200, '--utc --no-pager --output=short-precise --unit=kubelet\n'],
    [
      `query=kubelet&tailLines=5&pattern=a.b&boot=-1&${since}`,
      200,
      '--utc --no-pager --output=short-precise --since=2026-01-02 02:04:05 --pager-end --lines=5 --unit=kubelet --grep=a.b --boot -1\n',
    ],
    ['query=foo', 200, 'of foo\n'],
    ['query=foo&query=nginx', 200, 'of foo\nof nginx\n'],
    ['query=bar', 200, '\nlog not found for bar\n'],
    ['query=out', 200, '\nlog not found for out\n'],
    [
      'query=foo&tailLines=5',
      200,
      '\noptions present and query resolved to log files for [foo]\ntry without specifying options\n',
    ],
    ['query=/foo.log', 200, 'of foo\n'],
    ['query=/out', 406, 'query: Invalid value: ["/out"]: stat /out: no such file or directory\n'],
    ['query=%20', 400, 'query: Invalid value: [" "]: query cannot be empty\n'],
    ['query=a&tailLines=x', 400, 'tailLines: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax\n'],
    ['query=a&sinceTime=now', 400, 'sinceTime: Invalid value: "now": invalid time format\n'],
    ['tailLines=5', 406, 'query: Required value: cannot be empty with options\n'],
    ['query=a%20--help', 406, 'query: Invalid value: "a --help": input contains unsupported characters\n'],
    ['query=a&boot=1', 406, 'boot: Invalid value: 1: must be less than 1\n'],
    ['query=a&query=/b', 406, 'query: Invalid value: "[/b], [a]": cannot specify a file and service\n'],
    ['query=a&tailLines=100001', 406, 'tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive\n'],
    ['query=a&query=b&query=c&query=d&query=e', 406, 'query: Too many: 5: must have at most 4 items\n'],
  ] as const)
    it(`${query} is answered with ${status}`, async () => {
      const answer = await server.ask(`GET /logs/?${query}`);
      assert.deepEqual([answer.status, answer.text], [status, text]);
    });

  it('is no query of a path', async () => {
    assert.equal((await server.ask('GET /logs/foo.log?query=kubelet')).status, 406);
    assert.equal((await server.ask('GET /logs/foo.log')).text, 'of foo\n');
  });

  it('redirects to the paths of directories, which end with a slash, and of files', async () => {
    for (const [path, location] of [
      ['nginx', 'nginx/'],
      ['nginx?a=1', 'nginx/?a=1'],
      ['nginx/nginx.log/', '../nginx.log'],
    ] as const) {
      const answer = await server.ask(`GET /logs/${path}`);
      assert.deepEqual([answer.status, answer.location], [301, location], path);
    }
    assert.match((await server.ask('GET /logs/nginx/')).text, /<a href="nginx.log">/);
  });
});
