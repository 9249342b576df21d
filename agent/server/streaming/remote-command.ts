/**
 * Defines what exec and attach need from a client connection, whichever protocol it uses: the requested streams, and the final
 * report on how the command ended.
 */
import type { Readable, Writable } from 'node:stream';
import type { TerminalSize } from '../../runtime/runtime.ts';

/** The streams that the query of the request asks for. With `tty`, `stderr` is ignored: a terminal has one output. */
export interface WantedStreams {
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** The client's side of a command. */
export interface RemoteCommand {
  readonly stdin: Readable | undefined;
  readonly stdout: Writable | undefined;
  readonly stderr: Writable | undefined;
  readonly resize: AsyncIterable<TerminalSize>;
  /** Aborts when the client is gone. */
  readonly signal: AbortSignal;
  /** Reports how the command ended, and closes the streams once they are drained. */
  finish(outcome: CommandOutcome): Promise<void>;
}

/** How a command ended: with its exit code, or with a failure to run it, to attach to it or to transfer its streams. */
export type CommandOutcome =
  | { readonly state: 'exited'; readonly exitCode: number }
  | { readonly state: 'failed'; readonly message: string };

/** Returns the Status that protocols from v4 on send at the end. */
export function outcomeStatus(outcome: CommandOutcome): object {
  if (outcome.state === 'exited' && outcome.exitCode === 0) return { metadata: {}, status: 'Success' };
  if (outcome.state === 'exited') {
    return {
      metadata: {},
      status: 'Failure',
      message: `command terminated with non-zero exit code: exit status ${outcome.exitCode}`,
      reason: 'NonZeroExitCode',
      details: { causes: [{ reason: 'ExitCode', message: String(outcome.exitCode) }] },
    };
  }
  return {
    metadata: {},
    status: 'Failure',
    message: `Internal error occurred: ${outcome.message}`,
    reason: 'InternalError',
    details: { causes: [{ message: outcome.message }] },
    code: 500,
  };
}

/** Returns the error text that protocols before v4 send; empty for success. */
export function outcomeText(outcome: CommandOutcome): string {
  if (outcome.state === 'failed') return outcome.message;
  return outcome.exitCode === 0
    ? ''
    : `error executing remote command: command terminated with exit code ${outcome.exitCode}`;
}

/** The longest message with a terminal size that is parsed, in characters. Longer ones are ignored as invalid. */
const LONGEST_SIZE = 1024;

const isLength = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 1 && Number(value) <= 65_535;

/** The sizes of the client's terminal, as an iterable. A newer size replaces one that is not read yet. */
export class SizeQueue implements AsyncIterable<TerminalSize> {
  #latest: TerminalSize | undefined;
  #ended = false;
  #wake: () => void = () => undefined;

  /** Takes a size that the client sent as JSON. Never throws, and ignores an invalid one. */
  push(text: string): void {
    if (text.length > LONGEST_SIZE) return;
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      // An invalid message of the client is ignored.
      return;
    }
    const size = value as { Width?: unknown; Height?: unknown } | null;
    if (!isLength(size?.Width) || !isLength(size.Height)) return;
    this.#latest = { width: size.Width, height: size.Height };
    this.#wake();
  }

  end(): void {
    this.#ended = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TerminalSize> {
    for (;;) {
      const next = this.#latest;
      this.#latest = undefined;
      if (next !== undefined) {
        yield next;
        continue;
      }
      if (this.#ended) return;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

/** Ends a stream. Resolves when its data was written or the stream broke. */
export function endStream(stream: Writable | undefined): Promise<void> {
  if (stream === undefined || stream.destroyed || stream.writableFinished) return Promise.resolve();
  return new Promise((resolve) => {
    stream.once('close', () => resolve());
    stream.once('error', () => resolve());
    stream.end(() => resolve());
  });
}
