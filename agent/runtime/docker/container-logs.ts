/** Owns the CRI log writers, one per container whose output is not complete yet. */
import type { ContainerInspectInfo } from 'dockerode';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import type { DockerClient } from './docker-client.ts';
import { RuntimeError } from '../runtime.ts';
import { readLabels } from './labels.ts';
import { LogWriter } from './log-writer.ts';

/** How long the status of an exited container waits for the rest of the container's log. */
const SETTLE_MS = 2_000;

/** Owns the writers by container id. A writer that fails is logged, and the container runs on. */
export class ContainerLogs {
  readonly #client: DockerClient;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #writers = new Map<string, LogWriter>();

  constructor(options: { readonly client: DockerClient; readonly clock: Clock; readonly logger: Logger }) {
    this.#client = options.client;
    this.#clock = options.clock;
    this.#logger = options.logger;
  }

  /**
   * Starts a writer that appends to the log file named in the container's labels. Does nothing if the container no longer
   * exists, has no such label or has a writer.
   */
  async write(id: string): Promise<void> {
    const found = await this.#inspect(id);
    if (found === undefined) return;
    const { Config } = found;
    const { logPath } = readLabels(Config.Labels);
    if (this.#writers.has(id) || logPath === '') return;
    const writer = new LogWriter(
      { id, tty: Config.Tty, logPath },
      {
        client: this.#client,
        clock: this.#clock,
        logger: this.#logger,
        running: async (container) => {
          try {
            return (await this.#inspect(container))?.State.Running ?? false;
          } catch {
            // The engine does not answer. The writer tries again.
            return true;
          }
        },
      },
    );
    this.#writers.set(id, writer);
    const forget = (): void => {
      if (this.#writers.get(id) === writer) this.#writers.delete(id);
    };
    background(writer.finished.finally(forget), {
      logger: this.#logger,
      what: 'Writing the log of a container',
      fields: { container: id },
    });
  }

  async #inspect(id: string): Promise<ContainerInspectInfo | undefined> {
    try {
      return await this.#client.call('inspect container', () => this.#client.docker.getContainer(id).inspect());
    } catch (error) {
      if (error instanceof RuntimeError && error.code === 'not-found') return undefined;
      throw error;
    }
  }

  /** Reopens the log file of a container, after it was renamed for its rotation. */
  async reopen(id: string): Promise<void> {
    await this.#writers.get(id)?.reopen();
  }

  /** Resolves when the whole output is in the log file, or after `SETTLE_MS`; at once if the container has no writer. */
  async settled(id: string): Promise<void> {
    const writer = this.#writers.get(id);
    if (writer === undefined) return;
    const limit = new AbortController();
    await Promise.race([writer.finished, pause(this.#clock, SETTLE_MS, limit.signal)]);
    limit.abort();
  }

  /** Removes the writer and returns a function that closes it. */
  remove(id: string): () => Promise<void> {
    const writer = this.#writers.get(id);
    this.#writers.delete(id);
    return async () => writer?.close();
  }

  async close(): Promise<void> {
    const writers = [...this.#writers.values()];
    this.#writers.clear();
    await Promise.all(writers.map((writer) => writer.close()));
  }
}
