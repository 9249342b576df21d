/**
 * Tests exec, attach, cp, port-forward and logs on a real runtime with the oldest and the newest installed kubectl: terminals
 * that change their size, large transfers, half-closed connections and slow readers. Each runtime has a cluster of one node.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { RuntimeName } from './agent-process.ts';
import { PodCluster } from './pod-cluster.ts';
import { PodWatch } from './pod-watch.ts';
import { freePort } from './free-port.ts';
import { kubectls, type KubectlResult } from './kubectl.ts';
import { Ended, until } from '../until.ts';

const installed = kubectls();
const chosen = [...new Set([installed[0], installed.at(-1)])].filter((found) => found !== undefined);
const LARGE_BYTES = 8 << 20;
const BLOCK_BYTES = 64 << 10;

const TALKER = [
  'nc -ll -p 9000 -e md5sum &',
  `nc -ll -p 9002 -e sh -c 'head -c ${LARGE_BYTES} | md5sum' &`,
  `nc -ll -p 9001 -e head -c ${LARGE_BYTES} /dev/zero &`,
  'while read -r line; do echo "got $line"; done',
].join('\n');

const LINES = [
  'trap "echo bye; exit 0" TERM',
  'for i in 1 2 3 4 5; do echo "out $i"; sleep 0.02; done',
  'echo err >&2',
  'while :; do sleep 0.1; done',
].join('\n');

/** Declares the tests for a runtime. `skip` is the reason why they cannot run. */
export function podStreams(on: RuntimeName, skip: string | false): void {
  const why = skip === false && chosen.length === 0 ? 'no kubectl on PATH' : skip;
  describe(`streams of pods on ${on}`, { skip: why, timeout: 280_000 }, () => {
    let cluster: PodCluster;
    let watch: PodWatch;

    before(async () => {
      cluster = await PodCluster.start({ on, cidr: on === 'docker' ? '10.107.0.0/16' : '10.108.0.0/16' });
      watch = new PodWatch(cluster);
      const { mount, volumes } = cluster.sharedMount;
      cluster.createAll([
        cluster.manifest('talker', {
          container: { command: ['sh', '-c', TALKER], stdin: true, ...mount },
          spec: volumes,
        }),
        cluster.manifest('lines', { container: { command: ['sh', '-c', LINES] } }),
      ]);
      for (const name of ['talker', 'lines'])
        await cluster.eventually(`readiness of ${name}`, () => watch.container(name)?.ready === true);
    });
    after(async () => {
      watch?.close();
      await cluster?.remove();
    });

    for (const { version, path } of chosen) {
      const kubectl = (args: readonly string[], input?: string): KubectlResult =>
        cluster.plane.kubectl(args, { path, ...(input === undefined ? {} : { input }) });
      const succeed = (args: readonly string[], input?: string): string => {
        const done = kubectl(args, input);
        assert.equal(done.code, 0, `kubectl ${args.join(' ')}: ${done.stderr}${done.stdout}`);
        return done.stdout;
      };

      test(`kubectl ${version}: a terminal has its size, and gets a new one; the exit code comes back`, () => {
        const wait = (size: string): string => `until [ "$(stty size)" = "${size}" ]; do sleep 0.1; done`;
        const inside = `${wait('33 77')}; echo first > /shared/sized-${version}; ${wait('44 88')}; exit 7`;
        const file = join(cluster.shared, `sized-${version}`);
        // script(1) gives kubectl a terminal. Its size changes once the command has printed the first size.
        const session = [
          'stty rows 33 cols 77',
          `(until [ -s ${file} ]; do sleep 0.1; done; stty rows 44 cols 88 < /dev/tty) &`,
          `${path} exec -it talker -- sh -c '${inside}'`,
        ].join('\n');
        const done = spawnSync('script', ['-qec', session, '/dev/null'], {
          encoding: 'utf8',
          env: { ...process.env, KUBECONFIG: cluster.plane.kubeconfig, SHELL: '/bin/sh' },
          timeout: 60_000,
          stdio: ['pipe', 'pipe', 'pipe'],
        });
        assert.equal(done.status, 7, `${done.stdout}${done.stderr}`);
      });

      test(`kubectl ${version}: attach takes input and gives output`, async () => {
        const child = cluster.spawn(['attach', '-i', 'talker'], path);
        let seen = '';
        child.stdout?.on('data', (chunk: Buffer) => (seen += chunk.toString()));
        try {
          child.stdin?.write(`words of ${version}\n`);
          await cluster.eventually('the answer', () => seen.includes(`got words of ${version}\n`));
        } finally {
          child.kill();
        }
      });

      test(`kubectl ${version}: files are copied there and back whole`, () => {
        const content = randomBytes(LARGE_BYTES);
        const [there, back] = ['there', 'back'].map((name) => join(cluster.agent.directory, `${name}-${version}`));
        writeFileSync(there ?? '', content);
        succeed(['cp', there ?? '', `talker:/tmp/file-${version}`]);
        succeed(['cp', `talker:/tmp/file-${version}`, back ?? '']);
        assert.equal(md5(readFileSync(back ?? '')), md5(content));
      });

      test(`kubectl ${version}: a forwarded port carries much both ways, and on Docker its half-close`, async () => {
        const [up, down, half] = [await freePort(), await freePort(), await freePort()];
        const ports = [`${half}:9000`, `${up}:9002`, `${down}:9001`];
        const child = cluster.spawn(['port-forward', 'talker', ...ports], path);
        let output = '';
        for (const stream of [child.stdout, child.stderr])
          stream?.on('data', (chunk: Buffer) => (output += chunk.toString()));
        try {
          await until('the forwarding', () => {
            if (child.exitCode !== null) throw new Ended(output);
            return output.includes(`127.0.0.1:${down} -> 9001`) ? true : undefined;
          });
          const content = randomBytes(LARGE_BYTES);
          const sum = `${md5(content)}  -\n`;
          assert.equal((await exchange(up, content, { isHalfClosed: false })).toString(), sum);
          // containerd 1.6 does not forward half-closes, and closes both directions a second later.
          if (on === 'docker') assert.equal((await exchange(half, content, { isHalfClosed: true })).toString(), sum);
          assert.equal((await exchange(down, Buffer.alloc(0), { isHalfClosed: false })).length, LARGE_BYTES);
        } finally {
          child.kill();
        }
      });

      test(`kubectl ${version}: a command that ends is done though its input goes on without end`, async () => {
        const child = cluster.spawn(['exec', '-i', 'talker', '--', 'echo', 'done'], path);
        let seen = '';
        child.stdout?.on('data', (chunk: Buffer) => (seen += chunk.toString()));
        const { stdin } = child;
        stdin?.on('error', () => undefined);
        const more = (): void => {
          while (stdin?.writable === true && stdin.write(Buffer.alloc(BLOCK_BYTES)));
          stdin?.once('drain', more);
        };
        more();
        await until('the end of kubectl', () => (child.exitCode === null ? undefined : true));
        assert.equal(seen, 'done\n');
      });
    }

    test('a slow reader blocks the command, and the buffered output is bounded', async () => {
      const count = `i=0; while echo "$block"; do i=$((i+1)); echo $i > /shared/blocks; done`;
      const command = `block=$(head -c ${BLOCK_BYTES} /dev/zero | tr '\\0' x); ${count}`;
      const child = cluster.spawn(['exec', 'talker', '--', 'sh', '-c', command]);
      child.stdout?.pause();
      try {
        let before = '';
        let same = 0;
        await until('the end of the writing', () => {
          const now = cluster.written('blocks');
          same = now !== '' && now === before ? same + 1 : 0;
          before = now;
          // The interval is at most 100 ms, so by now the writer is blocked.
          return same > 20 ? true : undefined;
        });
        const bytes = Number(before) * BLOCK_BYTES;
        assert.ok(bytes < 48 << 20, `${bytes} bytes are on their way`);
      } finally {
        child.kill();
      }
    });

    test('logs are returned from the requested start, up to the requested limit, and in the requested format', async () => {
      const logs = (...args: string[]): string => cluster.run(['logs', 'lines', ...args]);
      const whole = 'out 1\nout 2\nout 3\nout 4\nout 5\nerr\n';
      await cluster.eventually('all lines', () => logs().split('\n').length === 7);
      // The two streams are transferred independently.
      assert.deepEqual(logs().split('\n').toSorted(), whole.split('\n').toSorted());
      const timed = logs('--timestamps').trimEnd().split('\n');
      for (const line of timed)
        assert.match(line, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(Z|[+-]\d\d:\d\d) (out \d|err)$/);
      const fifth = timed.find((line) => line.endsWith(' out 5'))?.split(' ')[0] ?? '';
      assert.equal(
        logs('--tail=2'),
        timed
          .slice(-2)
          .map((line) => `${line.slice(line.indexOf(' ') + 1)}\n`)
          .join(''),
      );
      assert.equal(logs('--limit-bytes=8', '--tail=-1'), logs().slice(0, 8));
      assert.equal(logs('--since=1h'), logs());
      const since = `/api/v1/namespaces/default/pods/lines/log?sinceTime=${encodeURIComponent(fifth)}`;
      assert.deepEqual(
        cluster
          .run(['get', '--raw', since])
          .split('\n')
          .filter((line) => line.startsWith('out')),
        ['out 5'],
      );
      const refused = cluster.try(['get', '--raw', '/api/v1/namespaces/default/pods/lines/log?stream=Stdout']);
      assert.match(refused.stderr, /stream: Forbidden: may not be specified/);
      const previous = cluster.try(['logs', 'lines', '--previous']);
      assert.match(previous.stderr, /previous terminated container "main" in pod "lines" not found/);
    });

    test('a followed log ends when the container is restarted, and the previous log remains readable', async () => {
      const follower = cluster.spawn(['logs', '-f', '--tail=1', 'lines']);
      let seen = '';
      follower.stdout?.on('data', (chunk: Buffer) => (seen += chunk.toString()));
      await cluster.eventually('a line', () => seen !== '');
      cluster.shell('lines', 'kill 1');
      await until('the end of the follower', () => (follower.exitCode === null ? undefined : true));
      assert.ok(seen.endsWith('\nbye\n'), seen);
      assert.equal(seen.split('\n').length, 3);
      await cluster.eventually('the restart', () => watch.container('lines')?.restartCount === 1);
      await cluster.eventually('the previous log', () => cluster.try(['logs', 'lines', '-p']).stdout.endsWith('bye\n'));
      assert.equal(cluster.run(['logs', 'lines']).includes('bye'), false);
    });
  });
}

function md5(content: Buffer): string {
  return createHash('md5').update(content).digest('hex');
}

/** Sends data, and then closes its direction if requested. Resolves to all received data. */
function exchange(
  port: number,
  content: Buffer,
  { isHalfClosed }: { readonly isHalfClosed: boolean },
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.once('error', reject);
    socket.once('end', () => {
      socket.end();
      resolve(Buffer.concat(chunks));
    });
    socket.write(content);
    if (isHalfClosed) socket.end();
  });
}
