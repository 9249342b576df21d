/**
 * Tests the contract of container runtimes. Every implementation of the agent's runtime interface must pass it: the fake,
 * Docker and CRI. It needs an image with a shell and coreutils. It only waits for conditions, so the speed of the runtime does
 * not matter.
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { after, before, describe, it } from 'node:test';
import {
  type ContainerConfig,
  type ContainerStatus,
  type Runtime,
  RuntimeError,
  type SandboxConfig,
} from '../../agent/runtime/runtime.ts';
import type { ContainerId, SandboxId } from '../../agent/runtime/runtime-identity.ts';
import { containerConfig, defaultSecurity, noLimits, sandboxConfig } from '../fakes/runtime-config.ts';
import { until } from '../until.ts';

export interface RuntimeUnderTest {
  readonly runtime: Runtime;
  readonly image: string;
  /** A directory of this suite for logs and files. */
  readonly directory: string;
  /** Set if no real processes run. Then there are no files and no network. */
  readonly simulated: boolean;
  /** Creates a second client of the same runtime, like a restarted agent. */
  readonly restart: () => Promise<Runtime>;
  readonly close: () => Promise<void>;
}

const WAIT_MS = 60_000;

/** Declares the tests of the contract. `open` starts the runtime once for all of them. */
export function runtimeContract(name: string, open: () => Promise<RuntimeUnderTest>): void {
  describe(`the ${name} runtime`, () => {
    let under: RuntimeUnderTest;
    let runtime: Runtime;
    let sandbox: SandboxId;
    let sandboxConfig: SandboxConfig;
    let attempts = 0;

    before(async () => {
      under = await open();
      runtime = under.runtime;
      sandboxConfig = sandboxOf(under.directory, 'main');
      sandbox = await runtime.runSandbox(sandboxConfig);
    });
    after(async () => {
      for (const left of await runtime.listSandboxes()) {
        await runtime.stopSandbox(left.id);
        await runtime.removeSandbox(left.id);
      }
      await under.close();
    });

    const config = (command: readonly string[], changes: Partial<ContainerConfig> = {}): ContainerConfig =>
      containerOf(under.image, `c${attempts++}`, command, changes);
    const run = async (command: readonly string[], changes: Partial<ContainerConfig> = {}): Promise<ContainerId> => {
      const id = await runtime.createContainer(sandbox, sandboxConfig, config(command, changes));
      await runtime.startContainer(id);
      return id;
    };
    const ended = (id: ContainerId): Promise<ContainerStatus> =>
      until('the end of the container', async () => {
        const status = await runtime.containerStatus(id);
        return status.state === 'exited' && status;
      });

    it('reports its name and that it is ready', async () => {
      assert.notEqual((await runtime.info()).name, '');
      for (const condition of await runtime.conditions()) assert.equal(condition.ready, true, condition.message);
    });

    it('shows a sandbox with its pod, labels, annotations and an address', async () => {
      const status = await runtime.sandboxStatus(sandbox);
      assert.equal(status.state, 'ready');
      assert.deepEqual(status.pod, sandboxConfig.pod);
      assert.equal(status.labels['color'], 'blue');
      assert.equal(status.annotations['note'], 'kept');
      assert.equal(status.ips.length > 0, true);
      assert.deepEqual(
        (await runtime.listSandboxes({ podUid: sandboxConfig.pod.uid })).map((entry) => entry.id),
        [sandbox],
      );
      assert.deepEqual(await runtime.listSandboxes({ podUid: 'nobody' }), []);
    });

    it('reports a process of a sandbox, where it has one', async () => {
      const pid = await runtime.sandboxProcess(sandbox);
      assert.ok(pid === 0 || existsSync(`/proc/${pid}/ns/net`), String(pid));
    });

    it('reports objects that do not exist', async () => {
      const nobody = '0'.repeat(64);
      const notFound = (error: unknown): boolean => error instanceof RuntimeError && error.code === 'not-found';
      await assert.rejects(runtime.sandboxStatus(nobody as SandboxId), notFound);
      await assert.rejects(runtime.containerStatus(nobody as ContainerId), notFound);
      await runtime.stopSandbox(nobody as SandboxId);
      await runtime.removeSandbox(nobody as SandboxId);
      await runtime.stopContainer(nobody as ContainerId, 0);
      await runtime.removeContainer(nobody as ContainerId);
      assert.equal(await runtime.imageStatus('registry.invalid/none:1'), undefined);
    });

    it('takes a container from created to running to exited', async () => {
      const id = await runtime.createContainer(sandbox, sandboxConfig, config(['sleep', '1000'], { attempt: 3 }));
      assert.equal((await runtime.containerStatus(id)).state, 'created');
      await runtime.startContainer(id);
      const status = await runtime.containerStatus(id);
      assert.equal(status.state, 'running');
      assert.equal(status.attempt, 3);
      assert.equal(status.sandboxId, sandbox);
      assert.equal(status.startedAtMs > 0, true);
      await runtime.stopContainer(id, 0);
      const after = await runtime.containerStatus(id);
      assert.deepEqual([after.state, after.exitCode, after.reason], ['exited', 137, 'Error']);
      assert.equal(
        (await runtime.listContainers({ sandboxId: sandbox })).some(
          (entry) => entry.id === id && entry.state === 'exited',
        ),
        true,
      );
      await runtime.removeContainer(id);
      assert.equal(
        (await runtime.listContainers()).some((entry) => entry.id === id),
        false,
      );
    });

    it('reports how a container terminated', async () => {
      const well = await ended(await run(['sh', '-c', 'exit 0']));
      assert.deepEqual([well.exitCode, well.reason], [0, 'Completed']);
      const badly = await ended(await run(['sh', '-c', 'exit 7']));
      assert.deepEqual([badly.exitCode, badly.reason], [7, 'Error']);
      // This is not the start time, because containerd records the start after the process may have ended.
      assert.equal(badly.finishedAtMs >= badly.createdAtMs, true);
    });

    it('reports why a container could not be started', async () => {
      const id = await runtime.createContainer(sandbox, sandboxConfig, config(['/no/such/program']));
      await assert.rejects(
        runtime.startContainer(id),
        (error: unknown) => error instanceof RuntimeError && /no such file or directory/.test(error.message),
      );
      const status = await runtime.containerStatus(id);
      assert.deepEqual([status.state, status.exitCode, status.reason], ['exited', 128, 'StartError']);
      assert.match(status.message, /\/no\/such\/program/);
    });

    it('runs a command in a container and gives its output and exit code', async () => {
      const id = await run(['sleep', '1000']);
      const result = await runtime.execSync(id, ['sh', '-c', 'echo out; echo err >&2; exit 3'], { timeoutMs: WAIT_MS });
      assert.deepEqual([result.exitCode, result.stdout.toString(), result.stderr.toString()], [3, 'out\n', 'err\n']);
      await assert.rejects(
        runtime.execSync(id, ['sleep', '1000'], { timeoutMs: 300 }),
        (error: unknown) => error instanceof RuntimeError && error.code === 'timeout',
      );
      await runtime.stopContainer(id, 0);
    });

    it('carries the streams of a command, input to its end', async () => {
      const id = await run(['sleep', '1000']);
      const stdin = new PassThrough();
      const stdout = new PassThrough();
      let text = '';
      stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
      stdin.end('hello\n');
      assert.equal(
        await runtime.exec(id, ['cat'], {
          stdin,
          stdout,
          stderr: new PassThrough(),
          tty: false,
          signal: AbortSignal.timeout(WAIT_MS),
        }),
        0,
      );
      assert.equal(text, 'hello\n');
      await runtime.stopContainer(id, 0);
    });

    it('brings the whole output of a command, also one that ends at once', async () => {
      if (under.simulated) return;
      const id = await run(['sleep', '1000']);
      const stdout = new PassThrough();
      let size = 0;
      stdout.on('data', (chunk: Buffer) => (size += chunk.length));
      const code = await runtime.exec(id, ['sh', '-c', 'head -c 3000000 /dev/zero; exit 5'], {
        stdout,
        stderr: new PassThrough(),
        tty: false,
        signal: AbortSignal.timeout(WAIT_MS),
      });
      assert.deepEqual([code, size], [5, 3_000_000]);
      await runtime.stopContainer(id, 0);
    });

    it('reports the exit code and the whole output of each of fifty simultaneous commands', async () => {
      if (under.simulated) return;
      const id = await run(['sleep', '1000']);
      const one = async (code: number): Promise<readonly [number, string]> => {
        const [stdin, stdout] = [new PassThrough(), new PassThrough()];
        let text = '';
        stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
        stdin.end('in');
        const io = { stdin, stdout, stderr: new PassThrough(), tty: false, signal: AbortSignal.timeout(2 * WAIT_MS) };
        const command = ['sh', '-c', `cat; echo ${code}; exit ${code}`];
        return [await runtime.exec(id, command, io), text];
      };
      const codes = Array.from({ length: 50 }, (_unused, index) => index + 1);
      assert.deepEqual(
        await Promise.all(codes.map(one)),
        codes.map((code) => [code, `in${code}\n`]),
      );
      await runtime.stopContainer(id, 0);
    });

    it('reports starts and exits', async () => {
      const abort = new AbortController();
      const seen: string[] = [];
      let connected = false;
      const listening = runtime.events(
        abort.signal,
        (event) => seen.push(`${event.type} ${event.podUid} ${event.containerId}`),
        () => (connected = true),
      );
      await until('the connection', () => Promise.resolve(connected));
      const id = await run(['sh', '-c', 'exit 0']);
      await until('the end', () => Promise.resolve(seen.includes(`stopped ${sandboxConfig.pod.uid} ${id}`)));
      // After the event, a read returns the reported state.
      assert.equal(
        (await runtime.listContainers({ podUid: sandboxConfig.pod.uid })).find((entry) => entry.id === id)?.state,
        'exited',
      );
      assert.equal(seen.includes(`started ${sandboxConfig.pod.uid} ${id}`), true);
      abort.abort();
      await listening;
    });

    it('restores everything after a restart of the agent', async () => {
      const id = await run(['sleep', '1000']);
      const again = await under.restart();
      assert.equal((await again.containerStatus(id)).state, 'running');
      assert.deepEqual((await again.sandboxStatus(sandbox)).pod, sandboxConfig.pod);
      await again.stopContainer(id, 0);
      await again.close();
    });

    it('ends everything in a sandbox with it', async () => {
      const own = sandboxOf(under.directory, 'short');
      const other = await runtime.runSandbox(own);
      const id = await runtime.createContainer(other, own, config(['sleep', '1000']));
      await runtime.startContainer(id);
      await runtime.stopSandbox(other);
      assert.equal((await runtime.sandboxStatus(other)).state, 'not-ready');
      assert.equal((await runtime.containerStatus(id)).state, 'exited');
      await runtime.stopSandbox(other);
      await runtime.removeSandbox(other);
      await assert.rejects(
        runtime.containerStatus(id),
        (error: unknown) => error instanceof RuntimeError && error.code === 'not-found',
      );
    });

    it('writes a log in the CRI format', async (context) => {
      if (under.simulated) return context.skip('there are no processes');
      const started = config(['sh', '-c', 'echo one; echo two >&2; printf three']);
      const id = await runtime.createContainer(sandbox, sandboxConfig, started);
      await runtime.startContainer(id);
      const { logPath } = await ended(id);
      assert.equal(logPath, join(sandboxConfig.logDirectory, started.logPath));
      const lines = await until('the log', async () => {
        const text = await readFile(logPath, 'utf8');
        return text.split('\n').length === 4 && text.trimEnd().split('\n');
      });
      const parsed = lines.map((line) =>
        /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (\S+) ([PF]) (.*)$/
          .exec(line)
          ?.slice(1)
          .join(' '),
      );
      assert.deepEqual(
        parsed.map((line) => line?.replace('three', '3').replace(' P ', ' ').replace(' F ', ' ')).toSorted(),
        ['stderr two', 'stdout 3', 'stdout one'],
      );
      return undefined;
    });

    it('loses and repeats nothing of a log over a restart', async (context) => {
      if (under.simulated) return context.skip('there are no processes');
      const id = await run([
        'sh',
        '-c',
        'i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); [ $((i % 20)) = 0 ] && sleep 0.1; done',
      ]);
      const again = await under.restart();
      const { logPath } = await ended(id);
      await again.close();
      const text = await until('the whole log', async () => {
        const all = await readFile(logPath, 'utf8');
        return all.includes('line 199\n') && all;
      });
      const numbers = new Set(
        text
          .trimEnd()
          .split('\n')
          .map((line) => /line (\d+)$/.exec(line)?.[1]),
      );
      assert.equal(numbers.size, 200);
      return undefined;
    });

    it('cuts the output of a command, and counts all of it', async (context) => {
      if (under.simulated) return context.skip('there are no processes');
      const id = await run(['sleep', '1000'], {});
      const options = { timeoutMs: WAIT_MS, maxOutputBytes: 1000 };
      const result = await runtime.execSync(id, ['head', '-c', '1000000', '/dev/zero'], options);
      assert.deepEqual([result.exitCode, result.stdout.length, result.outputBytes], [0, 1000, 1_000_000]);
      await runtime.stopContainer(id, 0);
      return undefined;
    });

    it('gives containers of a pod one network and address, the environment and the name of the pod', async (context) => {
      if (under.simulated) return context.skip('there are no processes');
      const id = await run(['sleep', '1000'], { env: [{ name: 'COLOR', value: 'blue' }] });
      const result = await runtime.execSync(
        id,
        ['sh', '-c', 'hostname; echo $COLOR; cat /proc/net/fib_trie /etc/resolv.conf'],
        { timeoutMs: WAIT_MS },
      );
      const [ip] = (await runtime.sandboxStatus(sandbox)).ips;
      const output = result.stdout.toString();
      assert.match(output, /^main\nblue\n/);
      assert.equal(output.includes(`|-- ${ip ?? '?'}\n`), true);
      assert.match(output, /search a\.test b\.test\nnameserver 192\.0\.2\.53\noptions ndots:5\n/);
      await runtime.stopContainer(id, 0);
      return undefined;
    });

    it('forwards a port that is open on the loopback of the pod only', async (context) => {
      if (under.simulated) return context.skip('there are no processes');
      const id = await run(['sh', '-c', 'mkdir -p /w; echo hi > /w/index.html; exec httpd -f -p 127.0.0.1:8081 -h /w']);
      const abort = new AbortController();
      const text = await until('the answer of the server', async () => {
        try {
          const connection = await runtime.portForward(sandbox, 8081, abort.signal);
          connection.write('GET / HTTP/1.0\r\n\r\n');
          let received = '';
          for await (const chunk of connection) {
            received += String(chunk);
            if (received.endsWith('hi\n')) return received;
          }
          return undefined;
        } catch (error) {
          if (error instanceof RuntimeError) return undefined;
          throw error;
        }
      });
      assert.match(text, /hi\n$/);
      abort.abort();
      await runtime.stopContainer(id, 0);
      return undefined;
    });

    it('reports that a container was killed for memory', async (context) => {
      if (under.simulated) return context.skip('there are no processes');
      const id = await run(['sh', '-c', 'x=a; while true; do x=$x$x; done'], {
        resources: { ...noLimits, memoryLimitBytes: 16 << 20, memorySwapLimitBytes: 16 << 20 },
      });
      const status = await ended(id);
      assert.deepEqual([status.exitCode, status.reason], [137, 'OOMKilled']);
      return undefined;
    });
  });
}

/** Returns the configuration of a sandbox with labels, an annotation and name servers. Its logs are below the directory. */
export function sandboxOf(directory: string, name: string): SandboxConfig {
  const uid = `uid-${name}-${process.pid}`;
  return sandboxConfig({
    pod: { name, namespace: 'contract', uid, attempt: 0 },
    hostname: name,
    logDirectory: join(directory, name),
    dns: { servers: ['192.0.2.53'], searches: ['a.test', 'b.test'], options: ['ndots:5'] },
    labels: {
      color: 'blue',
      'io.kubernetes.pod.name': name,
      'io.kubernetes.pod.namespace': 'contract',
      'io.kubernetes.pod.uid': uid,
    },
    annotations: { note: 'kept' },
  });
}

/** Returns the configuration of a container in the sandbox `main`. */
export function containerOf(
  image: string,
  name: string,
  command: readonly string[],
  changes: Partial<ContainerConfig>,
): ContainerConfig {
  return containerConfig({
    ...{ name, image, userImage: image, command },
    labels: { 'io.kubernetes.container.name': name, 'io.kubernetes.pod.uid': `uid-main-${process.pid}` },
    logPath: `${name}/0.log`,
    security: { ...defaultSecurity, seccomp: { type: 'Unconfined' } },
    ...changes,
  });
}
