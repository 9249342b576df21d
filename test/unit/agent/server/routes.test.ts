/** The plain routes of the agent's server respond like those of the kubelet. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { LogOptions } from '../../../../agent/runtime/logs/log-reader.ts';
import type { PodHost, RequestedContainer } from '../../../../agent/server/pod-host.ts';
import type { StreamIo } from '../../../../agent/runtime/runtime.ts';
import { parseLogOptions } from '../../../../agent/server/container-logs.ts';
import { newStatusError, StatusError } from '../../../../api/meta/status-error.ts';
import { type ServerUnderTest, startServerUnderTest } from './server-under-test.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

let problem = '';
let logged: LogOptions | undefined;
const host = {
  syncLoopHealth: () => problem,
  devicePluginHealth: () => '',
  pods: () => [],
  runningPods: async () => [],
  runningContainer: async ({ pod, container }: RequestedContainer) => {
    if (pod === 'none') throw newStatusError(404, 'NotFound', 'pod does not exist');
    return container === 'dead' ? undefined : 'id';
  },
  resolveSandbox: async () => 'id',
  exec: async (_id: string, command: readonly string[], io: StreamIo) => {
    io.stdout?.write(`ran ${command.join('|')}\n`);
    io.stderr?.write('oops\n');
    return command[0] === 'false' ? 7 : 0;
  },
  logs: async ({ pod }: { readonly pod: string }, options: LogOptions, out: NodeJS.WritableStream) => {
    logged = options;
    if (pod === 'none') throw newStatusError(404, 'NotFound', 'pod "none" does not exist');
    out.write('a line\n');
  },
} as unknown as PodHost;

/** Returns the number of a port that was recently free. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const LIST_HEAD = '<!doctype html>\n<meta name="viewport" content="width=device-width">\n';

describe("the agent's paths", () => {
  let open: ServerUnderTest;
  let closed: ServerUnderTest;
  let piped: ServerUnderTest;
  let logs: string;
  let pipes: string;
  let readOnlyPort: number;
  before(async () => {
    logs = temporaryFolder();
    await writeFile(join(logs, 'syslog'), 'hello\n');
    pipes = temporaryFolder();
    readOnlyPort = await freePort();
    execFileSync('mkfifo', [join(pipes, 'fifo')]);
    await mkdir(join(pipes, 'folder'));
    await symlink('/etc/hostname', join(pipes, 'folder/out'));
    piped = await startServerUnderTest({ host, systemLogs: { directory: pipes, queries: false } });
    open = await startServerUnderTest({ host, systemLogs: { directory: logs, queries: false }, readOnlyPort });
    closed = await startServerUnderTest({ host, debugHandlers: false });
  });
  after(async () => {
    await Promise.all([open.close(), closed.close(), piped.close()]);
  });

  const JSON_TYPE = 'application/json';
  const TEXT = 'text/plain; charset=utf-8';
  const METRICS = 'text/plain; version=0.0.4; charset=utf-8; escaping=underscores';
  const emptyList = '{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}';
  for (const [request, status, type, body] of [
    ['GET /healthz', 200, TEXT, 'ok'],
    ['HEAD /healthz', 200, TEXT, ''],
    ['GET /healthz/ping', 200, TEXT, 'ok'],
    ['GET /healthz/log', 200, TEXT, 'ok'],
    ['GET /healthz/syncloop', 200, TEXT, 'ok'],
    [
      'GET /healthz?verbose',
      200,
      TEXT,
      '[+]ping ok\n[+]log ok\n[+]syncloop ok\n[+]device-plugin ok\nhealthz check passed\n',
    ],
    [
      'GET /healthz?verbose&exclude=log&exclude=x',
      200,
      TEXT,
      '[+]ping ok\n[+]log excluded: ok\n[+]syncloop ok\n[+]device-plugin ok\nwarn: some health checks cannot be excluded: no matches for "x"\nhealthz check passed\n',
    ],
    ['GET /pods', 200, JSON_TYPE, emptyList],
    ['GET /pods/', 200, JSON_TYPE, emptyList],
    ['GET /runningpods/', 200, JSON_TYPE, emptyList],
    ['GET /runningpods', 307, 'text/html; charset=utf-8', '<a href="/runningpods/">Temporary Redirect</a>.\n\n'],
    ['GET /logs?query=a', 307, 'text/html; charset=utf-8', '<a href="/logs/">Temporary Redirect</a>.\n\n'],
    ['POST /pods', 405, TEXT, '405: Method Not Allowed'],
    ['DELETE /runningpods/', 405, TEXT, '405: Method Not Allowed'],
    ['GET /stats/summary', 200, JSON_TYPE, '{\n "only": false\n}'],
    ['GET /stats/summary?only_cpu_and_memory=true', 200, JSON_TYPE, '{\n "only": true\n}'],
    ['GET /metrics', 200, METRICS, 'metrics'],
    ['GET /metrics/cadvisor', 200, METRICS, 'cadvisor'],
    ['GET /metrics/resource', 200, METRICS, 'resource'],
    ['GET /metrics/probes', 200, METRICS, 'probes'],
    ['GET /configz', 200, JSON_TYPE, '{"kubeletconfig":{}}'],
    ['GET /containerLogs/ns/p/c', 200, TEXT, 'a line\n'],
    ['GET /containerLogs/ns/none/c', 404, TEXT, 'pod "none" does not exist'],
    ['GET /containerLogs/ns/p/c?tailLines=x', 400, TEXT, '{"message": "Unable to decode query."}'],
    ['GET /containerLogs/ns/p/c?tailLines=-1', 422, TEXT, '{"message": "Invalid request."}'],
    ['POST /containerLogs/ns/p/c', 405, TEXT, '405: Method Not Allowed'],
    ['POST /run/ns/p/c?cmd=echo%20x', 200, JSON_TYPE, 'ran echo|x\noops\n'],
    ['POST /run/ns/p/uid/c?cmd=true', 200, JSON_TYPE, 'ran true\noops\n'],
    ['POST /run/ns/p/c?cmd=false', 500, TEXT, "command 'false' exited with 7: oops\n"],
    ['POST /run/ns/none/c?cmd=true', 404, TEXT, 'pod does not exist'],
    ['GET /run/ns/p/c?cmd=true', 405, TEXT, '405: Method Not Allowed'],
    ['GET /exec/ns/none/c?command=x&output=1', 404, TEXT, 'pod does not exist'],
    ['POST /exec/ns/p/c?command=x&output=1', 500, TEXT, 'Upgrade request required\n'],
    ['GET /attach/ns/p/uid/c?output=1', 500, TEXT, 'Upgrade request required\n'],
    ['POST /portForward/ns/p', 500, TEXT, 'Upgrade request required\n'],
    ['GET /exec/ns/p/dead?output=1', 500, TEXT, 'container not found ("dead")'],
    ['GET /attach/ns/p/dead?output=1', 500, TEXT, 'container dead not found in pod p_ns'],
    ['POST /run/ns/p/dead?cmd=true', 500, TEXT, 'container not found ("dead")'],
    ['PUT /exec/ns/p/c', 405, TEXT, '405: Method Not Allowed'],
    ['GET /containerLogs/ns/p/c?stream=All', 200, TEXT, 'a line\n'],
    [
      'GET /containerLogs/ns/p/c?stream=Stdout',
      400,
      TEXT,
      'unable to return the given log stream: "Stdout". Please enable PodLogsQuerySplitStreams feature gate in kubelet',
    ],
    [
      'GET /logs/?query=kubelet',
      200,
      'text/html; charset=utf-8',
      `${LIST_HEAD}<pre>\n<a href="syslog">syslog</a>\n</pre>\n`,
    ],
    ['GET /logs/syslog', 200, TEXT, 'hello\n'],
    ['GET /logs/', 200, 'text/html; charset=utf-8', `${LIST_HEAD}<pre>\n<a href="syslog">syslog</a>\n</pre>\n`],
    ['POST /logs/syslog', 405, TEXT, '405: Method Not Allowed'],
    ['GET /debug/pprof/heap', 405, TEXT, 'profiling endpoint is disabled.\n'],
    ['PUT /debug/flags/v', 405, TEXT, 'flags endpoint is disabled.\n'],
    ['GET /nowhere', 404, TEXT, '404 page not found\n'],
    ['GET /logs/none', 404, TEXT, '404 page not found\n'],
    ['GET /stats/none', 404, TEXT, '404: Page Not Found'],
    ['DELETE /containerLogs/ns/p', 404, TEXT, '404: Page Not Found'],
    ['GET /stats', 307, 'text/html; charset=utf-8', '<a href="/stats/">Temporary Redirect</a>.\n\n'],
    ['POST /runningpods', 307, '', ''],
    ['GET /exec/ns/none/c?command=x', 400, TEXT, 'you must specify at least 1 of stdin, stdout, stderr'],
    ['GET /exec/ns/p/c?command=x&stdout=true', 400, TEXT, 'you must specify at least 1 of stdin, stdout, stderr'],
    ['GET /healthz/device-plugin', 200, TEXT, 'ok'],
    ['POST /configz', 200, JSON_TYPE, '{"kubeletconfig":{}}'],
  ] as const) {
    it(`answer ${request} with ${status}`, async () => {
      const answer = await open.ask(request);
      assert.deepEqual([answer.status, answer.type, answer.text], [status, type, body]);
      if (status >= 400) assert.equal(answer.sniffing, body.endsWith('\n') ? 'nosniff' : '');
      if (status === 405 && body.startsWith('405')) assert.match(answer.allow, /^(GET|POST|GET, POST)$/);
    });
  }

  it(
    'show no FIFO among the logs, nor wait for it, and nothing that a link leads to',
    { timeout: 20_000 },
    async () => {
      // Each blocking open of a FIFO would block one of the few file system threads.
      const answers = await Promise.all(Array.from({ length: 8 }, () => piped.ask('GET /logs/fifo')));
      assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([404]));
      assert.equal((await piped.ask('GET /logs/folder/out')).status, 404);
      assert.match((await piped.ask('GET /logs/folder/')).text, /out/);
    },
  );

  it('name the unhealthy check, and show the reason only on the page of that check', async () => {
    problem = 'PLEG is not healthy';
    try {
      const whole = await open.ask('GET /healthz');
      const listed =
        '[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\n[+]device-plugin ok\nhealthz check failed\n';
      assert.deepEqual([whole.status, whole.text], [500, listed]);
      const part = await open.ask('GET /healthz/syncloop');
      assert.deepEqual([part.status, part.text], [500, 'internal server error: PLEG is not healthy\n']);
      assert.equal((await open.ask('GET /healthz?exclude=syncloop')).status, 200);
    } finally {
      problem = '';
    }
  });

  it('that access pods report that they are disabled without debugging handlers, also for upgrades', async () => {
    for (const path of [
      '/run/a/b/c',
      '/exec/a/b/c',
      '/containerLogs/a/b/c',
      '/runningpods/',
      '/logs/x',
      '/portForward/a/b',
    ]) {
      const answer = await closed.ask(`GET ${path}`);
      assert.deepEqual([answer.status, answer.text], [405, 'Debug endpoints are disabled.\n'], path);
    }
    const unknown = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Protocol': 'no.such.protocol' };
    assert.equal((await open.ask('GET /exec/ns/p/c?output=1', unknown)).status, 403);
    const upgrade = await closed.ask('GET /exec/a/b/c?output=1', { Connection: 'Upgrade', Upgrade: 'SPDY/3.1' });
    assert.deepEqual([upgrade.status, upgrade.text], [405, 'Debug endpoints are disabled.\n']);
    assert.equal((await closed.ask('GET /pods')).status, 200);
  });

  it('on the read-only port show pods and metrics, and have no access into pods', async () => {
    const read = async (path: string): Promise<readonly [number, string]> => {
      const answer = await fetch(`http://127.0.0.1:${readOnlyPort}${path}`);
      return [answer.status, await answer.text()];
    };
    assert.deepEqual(await read('/pods'), [200, emptyList]);
    assert.deepEqual(await read('/metrics/resource'), [200, 'resource']);
    assert.deepEqual(await read('/stats/summary'), [200, '{\n "only": false\n}']);
    assert.deepEqual(await read('/healthz'), [200, 'ok']);
    for (const path of ['/exec/a/b/c', '/run/a/b/c', '/containerLogs/a/b/c', '/runningpods/', '/logs/'])
      assert.deepEqual(await read(path), [405, 'Debug endpoints are disabled.\n'], path);
    for (const path of ['/configz', '/checkpoint/a/b/c', '/podManifests'])
      assert.equal((await read(path))[0], 404, path);
  });

  it('report that logs are disabled', async () => {
    const server = await startServerUnderTest({ host });
    try {
      const answer = await server.ask('GET /logs/syslog');
      assert.deepEqual([answer.status, answer.text], [405, 'logs endpoint is disabled.\n']);
    } finally {
      await server.close();
    }
  });

  it('pass every option of a log on', async () => {
    const server = await startServerUnderTest({ host, splitLogStreams: true });
    await server.ask(
      'GET /containerLogs/ns/p/c?follow=true&previous=1&timestamps=true&limitBytes=9&sinceTime=2026-01-02T03:04:05Z&stream=Stderr',
    );
    await server.close();
    assert.deepEqual(logged, {
      follow: true,
      previous: true,
      timestamps: true,
      limitBytes: 9,
      sinceTime: '2026-01-02T03:04:05Z',
      stream: 'Stderr',
    });
  });
});

describe('options of a log', () => {
  const parsed = (query: string): LogOptions => parseLogOptions(new URLSearchParams(query));
  it('take the old name of the tail', () => {
    assert.equal(parsed('tail=3').tailLines, 3);
    assert.equal(parsed('tail=all&tailLines=4').tailLines, undefined);
  });
  it('are on without a value and count once, by their first value', () => {
    const { timestamps, previous, follow, tailLines } = parsed('timestamps&previous=False&tailLines=1&tailLines=x');
    assert.deepEqual(
      { timestamps, previous, follow, tailLines },
      { timestamps: true, previous: false, follow: false, tailLines: 1 },
    );
  });
  for (const [query, code] of [
    ['limitBytes=0', 422],
    ['sinceSeconds=0', 422],
    ['sinceSeconds=5&sinceTime=2026-01-02T03:04:05Z', 422],
    ['stream=Both', 422],
    ['stream=Stdout&tailLines=5', 422],
    ['sinceTime=yesterday', 400],
    ['sinceTime=2026-01-02T03:04:05', 400],
    ['sinceTime=2026-02-30T03:04:05Z', 400],
    ['limitBytes=1.5', 400],
    ['tailLines=', 400],
  ] as const) {
    it(`${query} are refused with ${code}`, () =>
      assert.throws(
        () => parsed(query),
        (error: unknown) => error instanceof StatusError && error.code === code,
      ));
  }
});
