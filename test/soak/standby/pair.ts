/**
 * Knows which host of the pair is the first, promotes the other one as an operator does, and sends the requests of clients to
 * either.
 */
import { type Answer, Api, type OpenWatch, type WatchFrame } from '../api.ts';
import { marksAfterLeap } from '../../../controlplane/storage/log-backend.ts';
import { until } from '../../until.ts';
import type { Random } from '../random.ts';
import type { PairHost } from './host.ts';
import type { Term } from './lineage.ts';
import type { PairNetwork } from './network.ts';

/** The two hosts in their roles, and the terms so far. */
export class Pair {
  readonly hosts: readonly [PairHost, PairHost];
  readonly network: PairNetwork;
  readonly terms: Term[] = [
    { server: 0, copied: 0, begins: 0, askedMs: 0, doneMs: 0, fencedMs: 0, isComplete: true, completeAtMs: 0 },
  ];

  constructor(hosts: readonly [PairHost, PairHost], network: PairNetwork) {
    this.hosts = hosts;
    this.network = network;
  }

  get #term(): Term {
    const term = this.terms.at(-1);
    if (term === undefined) throw new Error('there is always a term');
    return term;
  }

  /** The host that is the first control plane of the current term. */
  get first(): PairHost {
    return this.hosts[this.#term.server === 0 ? 0 : 1];
  }

  get second(): PairHost {
    return this.hosts[this.#term.server === 0 ? 1 : 0];
  }

  otherOf(host: PairHost): PairHost {
    return this.hosts[host.number === 0 ? 1 : 0];
  }

  /** Starts a host as a service with or without the flag does. */
  start(host: PairHost, hasFlag = true): void {
    host.up(hasFlag ? this.otherOf(host).url : undefined);
  }

  /** Promotes the standby. Returns why that was refused, or `undefined`. */
  async promote({ force }: { readonly force: boolean }): Promise<string | undefined> {
    const { second } = this;
    const dry = await second.orchlet('promote', '--dry-run');
    // The command prints whole seconds.
    const complete = /was complete \d+ s ago \(([^)]+)\)/.exec(dry.output)?.[1];
    const askedMs = performance.now();
    const { status, output } = await second.orchlet('promote', ...(force ? ['--force'] : []));
    if (status !== 0) return output;
    const { role } = second;
    if (role.role !== 'promoted') throw new Error(`the promoted host is ${role.role}: ${output}`);
    const doneMs = performance.now();
    this.terms.push({
      server: second.number,
      copied: role.revision,
      begins: marksAfterLeap(role.revision).lastRevision,
      askedMs,
      doneMs,
      fencedMs: role.isFenced ? doneMs : Number.POSITIVE_INFINITY,
      isComplete: output.includes('Nothing is lost'),
      completeAtMs: complete === undefined ? 0 : Date.parse(complete) - second.aheadMs - performance.timeOrigin,
    });
    return undefined;
  }

  /**
   * Called when the first control plane answers and the former one does not run. From then on, the former one must take no
   * write any more, however it comes back.
   */
  isWithoutFormer(): void {
    const term = this.#term;
    term.fencedMs = Math.min(term.fencedMs, performance.now());
  }

  /** Resolves when the first has confirmed that the former one takes no more writes. */
  async fenced(): Promise<void> {
    const { first } = this;
    await until('the end of the former first', () => first.role.role === 'promoted' && first.role.isFenced).catch(
      (error: unknown) => {
        throw new Error(
          `${String(error)}: ${JSON.stringify(first.role)}, other ${JSON.stringify(this.second.role)}\n${first.log.slice(-2000)}`,
          { cause: error },
        );
      },
    );
    this.isWithoutFormer();
  }

  /** Promotes the standby by force after a refused promotion, which has stopped the first: it does not start again. */
  async #replaceStopped(): Promise<void> {
    await this.first.down();
    const refused = await until('an answer of the standby', async () => {
      const answer = await this.promote({ force: true });
      return answer === undefined ? 'promoted' : /does not answer|standby starts/.test(answer) ? undefined : answer;
    });
    if (refused !== 'promoted') throw new Error(`the standby of a stopped first is not promoted: ${refused}`);
  }

  /** Resolves when one host is the first and the other one its standby, whatever happened to them before. */
  async settle(): Promise<void> {
    this.network.heal();
    for (const host of this.hosts) {
      host.thaw();
      host.fill('none');
    }
    if (this.first.role.role === 'fenced') await this.#replaceStopped();
    const { first, second } = this;
    this.start(first);
    if (second.isStandbyOf === undefined && !second.isDown) {
      // A former first without the flag refuses to start, until it gets the flag.
      await until('a former first that was stopped', () => second.role.role === 'fenced');
      await second.down();
      this.isWithoutFormer();
    } else if (this.terms.length > 1 && !second.isDown) await this.fenced();
    this.start(second);
    await first.ready();
    await second.following();
    if (this.terms.length > 1) await this.fenced();
  }
}

/**
 * Sends requests to one of the two, mostly to that which served last. What a standby refuses goes to the other one, as agents
 * do it.
 */
export class PairApi extends Api {
  readonly #pair: Pair;
  readonly #random: Random;
  #preferred = 0;

  constructor(pair: Pair, random: Random) {
    super(0, '');
    this.#pair = pair;
    this.#random = random;
  }

  #pick(): number {
    return this.#random.next() < 0.8 ? this.#preferred : this.#random.between(0, 1);
  }

  override async call(method: string, path: string, body?: unknown, timeoutMs = 10_000): Promise<Answer> {
    const server = this.#pick();
    const answer = await this.#at(server).call(method, path, body, timeoutMs);
    if (answer.status !== 503 && answer.status !== 0) this.#preferred = server;
    else this.#preferred = 1 - server;
    if (answer.status !== 503 || !/is a standby of/.test(answer.body.message ?? '')) return answer;
    return this.#at(1 - server).call(method, path, body, timeoutMs);
  }

  override watch(
    path: string,
    onFrame: (frame: WatchFrame) => void,
  ): { readonly over: Promise<number>; readonly watch: OpenWatch } {
    return this.#at(this.#pick()).watch(path, onFrame);
  }

  #at(server: number): Api {
    return this.#pair.hosts[server === 0 ? 0 : 1].api;
  }
}
