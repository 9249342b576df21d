/**
 * Runs processes inside a running container: exec with streams, exec with collected output, and attach. The engine cannot kill
 * an exec. At a time limit or an abort, this module kills the process by its process id on the host, after it has checked that
 * the process belongs to the container.
 */
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../../api/machinery/clock.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import { RuntimeError, type StreamIo, type TerminalSize } from '../runtime.ts';
import type { ContainerId } from '../runtime-identity.ts';
import { toRuntimeError, type DockerClient } from './docker-client.ts';
import { carryStreams, OutputBuffer, readFrames } from './stream-frames.ts';

/** The maximum number of repeated requests for an exit code after the streams have ended, and their interval. */
const EXIT_POLLS = 50;
const EXIT_POLL_MS = 20;
const DEFAULT_OUTPUT_BYTES = 16 * 1024 * 1024;
/** The output of a command that is read without a delay, and the rate at which the output after it is read. */
const FAST_OUTPUT_BYTES = 32 * 1024 * 1024;
const SLOW_BYTES_PER_SECOND = 4 * 1024 * 1024;

interface ExecDeps {
  readonly client: DockerClient;
  readonly clock: Clock;
}

/**
 * Runs a command with the streams of `io`. Resolves to its exit code. Rejects with `RuntimeError` if the signal aborts or the
 * stream breaks.
 */
export async function execStream(
  deps: ExecDeps,
  id: ContainerId,
  command: readonly string[],
  io: StreamIo,
): Promise<number> {
  const { client } = deps;
  const exec = await client.call('create exec', () =>
    client.docker.getContainer(id).exec({
      Cmd: [...command],
      AttachStdin: io.stdin !== undefined,
      AttachStdout: io.stdout !== undefined || io.tty,
      AttachStderr: io.stderr !== undefined && !io.tty,
      Tty: io.tty,
    }),
  );
  const connection = await client.call('start exec', () => exec.start({ hijack: true, stdin: false, Tty: io.tty }));
  if (io.stdin === undefined) connection.end();
  followSize(io.resize, (size) => exec.resize(size));
  await carryStreams(connection, io);
  if (io.signal.aborted) {
    await killExec(deps, exec.id, id);
    throw new RuntimeError('unknown', 'the stream was closed');
  }
  return exitCode(deps, exec.id);
}

/**
 * Runs a command and collects its output, at most `maxOutputBytes` of each stream. `timeoutMs` 0 means no limit. Rejects with
 * `RuntimeError` `timeout`, or `unknown` if the signal aborts; the command is killed then.
 */
export async function execCollect(
  deps: ExecDeps,
  id: ContainerId,
  command: readonly string[],
  options: { readonly timeoutMs: number; readonly signal?: AbortSignal; readonly maxOutputBytes?: number },
): Promise<{ exitCode: number; stdout: Buffer; stderr: Buffer; outputBytes: number }> {
  const { client, clock } = deps;
  const exec = await client.call('create exec', () =>
    client.docker.getContainer(id).exec({ Cmd: [...command], AttachStdout: true, AttachStderr: true }),
  );
  const connection = await client.call('start exec', () => exec.start({ hijack: true, stdin: false }));
  // The frames that are read below report the failure of the connection.
  connection.on('error', () => undefined);
  let outputBytes = 0;
  let stopReason: 'timeout' | 'aborted' | undefined;
  const stop = (reason: 'timeout' | 'aborted') => (): void => {
    stopReason ??= reason;
    connection.destroy();
  };
  const timer = options.timeoutMs > 0 ? clock.after(options.timeoutMs, stop('timeout')) : undefined;
  const onAbort = stop('aborted');
  options.signal?.addEventListener('abort', onAbort, { once: true });
  const output = {
    stdout: new OutputBuffer(options.maxOutputBytes ?? DEFAULT_OUTPUT_BYTES),
    stderr: new OutputBuffer(options.maxOutputBytes ?? DEFAULT_OUTPUT_BYTES),
  };
  try {
    if (options.signal?.aborted === true) onAbort();
    for await (const frame of readFrames(connection as AsyncIterable<Buffer>)) {
      output[frame.stream].add(frame.payload);
      outputBytes += frame.payload.length;
      // A command that prints without an end waits, and does not keep the agent busy.
      if (outputBytes > FAST_OUTPUT_BYTES) await clock.sleep((frame.payload.length / SLOW_BYTES_PER_SECOND) * 1000);
    }
  } catch (error) {
    if (stopReason === undefined) throw toRuntimeError(error);
  } finally {
    timer?.cancel();
    options.signal?.removeEventListener('abort', onAbort);
    connection.destroy();
  }
  if (stopReason !== undefined) {
    await killExec(deps, exec.id, id);
    throw new RuntimeError(
      stopReason === 'timeout' ? 'timeout' : 'unknown',
      stopReason === 'timeout' ? `command ${quoteText(command.join(' '))} timed out` : 'the command was cancelled',
    );
  }
  const code = await exitCode(deps, exec.id);
  return { exitCode: code, stdout: output.stdout.bytes(), stderr: output.stderr.bytes(), outputBytes };
}

/**
 * Connects the streams of a client with those of a container. Resolves when the streams have ended: when the container exits,
 * or the client is gone.
 */
export async function attachStream(deps: ExecDeps, id: ContainerId, io: StreamIo): Promise<void> {
  const { client } = deps;
  const container = client.docker.getContainer(id);
  const options = {
    stream: true,
    stdin: io.stdin !== undefined,
    stdout: io.stdout !== undefined || io.tty,
    stderr: io.stderr !== undefined && !io.tty,
  };
  // The container's own configuration decides whether its output has frames: a container with a terminal has none, whatever the
  // client of this attach requests.
  const { Config: config } = await client.call('inspect container', () => container.inspect());
  const connection = await client.call('attach', () => hijackedAttach(client, id, options));
  if (io.stdin === undefined) connection.end();
  followSize(io.resize, (size) => container.resize(size));
  await carryStreams(connection, { ...io, tty: config.Tty });
}

/** Replaces dockerode's attach, which leaves the request open when there is input and then never returns the connection. */
function hijackedAttach(client: DockerClient, id: string, options: object): Promise<NodeJS.ReadWriteStream> {
  return new Promise((resolve, reject) => {
    const request = {
      path: `/containers/${id}/attach?`,
      method: 'POST',
      isStream: true,
      hijack: true,
      openStdin: false,
      statusCodes: { 200: true, 101: true, 404: 'no such container' },
      options,
    };
    (
      client.docker.modem as {
        dial(request: object, done: (error: unknown, connection: NodeJS.ReadWriteStream) => void): void;
      }
    ).dial(request, (error, connection) => {
      if (error === null || error === undefined) resolve(connection);
      else reject(error as Error);
    });
  });
}

async function exitCode({ client, clock }: ExecDeps, execId: string): Promise<number> {
  for (let poll = 0; ; poll++) {
    const state = await client.call('inspect exec', () => client.docker.getExec(execId).inspect());
    if (!state.Running && state.ExitCode !== null) return state.ExitCode;
    if (poll === EXIT_POLLS) throw new RuntimeError('unknown', 'the exit code of the process did not become known');
    await clock.sleep(EXIT_POLL_MS);
  }
}

async function killExec({ client }: ExecDeps, execId: string, containerId: string): Promise<void> {
  try {
    const state = await client.call('inspect exec', () => client.docker.getExec(execId).inspect());
    if (!state.Running || state.Pid === 0) return;
    const cgroup = await readFile(`/proc/${state.Pid}/cgroup`, 'utf8');
    if (cgroup.includes(containerId)) process.kill(state.Pid, 'SIGKILL');
  } catch {
    // The process has exited or runs on another host, or the engine does not answer. Nothing can be killed.
  }
}

/** Passes the terminal sizes of the client to the engine until the stream ends. Ignores a size that the engine rejects. */
function followSize(
  sizes: AsyncIterable<TerminalSize> | undefined,
  resize: (size: { h: number; w: number }) => Promise<unknown>,
): void {
  const follow = async (): Promise<void> => {
    // A process that has exited has no terminal to resize.
    for await (const size of sizes ?? []) await resize({ h: size.height, w: size.width }).catch(() => undefined);
  };
  // The sizes end with the stream, with or without an error. Neither is a failure of the exec.
  follow().catch(() => undefined);
}
