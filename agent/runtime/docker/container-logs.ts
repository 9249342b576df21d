/** The writers of the containers' CRI logs, one for each that may still say something. */
import type { ContainerInspectInfo } from 'dockerode';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { DockerClient } from './docker-client.ts';
import { RuntimeError } from '../runtime.ts';
import { readLabels } from './labels.ts';
import { LogWriter } from './log-writer.ts';

/** How long an ended container's status waits for the rest of its log. */
const SETTLE_MS = 2_000;

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

  /** Begins, or goes on after what is in the file that the container's label names. One that is gone says nothing more. */
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
            return (await this.#client.docker.getContainer(container).inspect()).State.Running;
          } catch (error) {
            return (error as { statusCode?: number }).statusCode !== 404;
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

  async reopen(id: string): Promise<void> {
    await this.#writers.get(id)?.reopen();
  }

  /** The whole output is in the file, or it takes too long. */
  async settled(id: string): Promise<void> {
    const writer = this.#writers.get(id);
    if (writer === undefined) return;
    const limit = new AbortController();
    await Promise.race([writer.finished, this.#clock.sleep(SETTLE_MS, limit.signal).catch(() => undefined)]);
    limit.abort();
  }

  /** Resolves to what ends the writer, which nobody asks for any more. */
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
