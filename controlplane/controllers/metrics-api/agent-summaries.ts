/**
 * Reads the resource usage of nodes and their pods from the summaries of the agents. The summary of a node is requested when a
 * client needs it, and cached for a quarter of a minute.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Origin } from '../../model/rest.ts';
import { type AgentConnection, requestAgent } from '../../model/agent-request.ts';
import { isCount } from '../../../api/meta/integers.ts';

/** Usage at one moment. CPU is in billionths of a core, averaged by the agent. */
export interface MeasuredUsage {
  /** The time of the measurement, in RFC 3339. */
  readonly time: string;
  readonly nanoCores: number;
  readonly workingSetBytes: number;
}

/** The usage of a node and of its pods. */
export interface NodeSummary {
  readonly node: MeasuredUsage | undefined;
  /** The summaries by pod uid. */
  readonly pods: ReadonlyMap<string, PodSummary>;
}

interface PodSummary {
  readonly containers: readonly (MeasuredUsage & { readonly name: string })[];
}

interface AgentSummariesOptions extends AgentConnection {
  readonly clock: Clock;
  readonly onFailure: (node: string, error: unknown) => void;
  /** The time for a whole response. 5 s if absent. */
  readonly timeoutMs?: number;
}

/** Usage by node. */
export interface AgentSummaries {
  /** Resolves to the usage of a node and its pods, and to `undefined` if the node does not respond. */
  of(node: string, origin: Origin): Promise<NodeSummary | undefined>;
}

const CACHED_MS = 15_000;
const TIMEOUT_MS = 5_000;
/** The maximum size of an agent's summary, in which a container has some hundred bytes. */
const MAX_BYTES = 4 << 20;

/** Creates the reader of summaries. Requests for a node share one call of its agent while it is cached, also a failed one. */
export function createAgentSummaries(options: AgentSummariesOptions): AgentSummaries {
  const cache = new Map<string, { readonly atMs: number; readonly answer: Promise<NodeSummary | undefined> }>();
  return {
    of(node, origin) {
      const nowMs = options.clock.monotonic();
      for (const [name, { atMs }] of cache) if (nowMs - atMs > CACHED_MS) cache.delete(name);
      const cached = cache.get(node);
      if (cached !== undefined) return cached.answer;
      const answer = ask(node, origin, options)
        .then(parseSummary)
        .catch((error: unknown) => {
          options.onFailure(node, error);
          return undefined;
        });
      cache.set(node, { atMs: nowMs, answer });
      return answer;
    },
  };
}

const SUMMARY_PATH = '/stats/summary?only_cpu_and_memory=true';

function ask(node: string, origin: Origin, options: AgentSummariesOptions): Promise<unknown> {
  return requestAgent(options, {
    node,
    origin,
    method: 'GET',
    path: SUMMARY_PATH,
    timeoutMs: options.timeoutMs ?? TIMEOUT_MS,
    largestBytes: MAX_BYTES,
  });
}

type Members = Readonly<Record<string, unknown>>;

const membersOf = (value: unknown): Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Members) : {};
const itemsOf = (value: unknown): readonly Members[] => (Array.isArray(value) ? value.map(membersOf) : []);

/**
 * Reads the usage of a node and its pods from an answer of an agent. A pod is omitted while one of its containers has no rate
 * yet, because it has just started.
 */
export function parseSummary(answer: unknown): NodeSummary {
  const { node, pods } = membersOf(answer);
  const found = new Map<string, PodSummary>();
  for (const { podRef, containers } of itemsOf(pods)) {
    const { uid } = membersOf(podRef);
    const measured = itemsOf(containers).map((one) => ({ name: one['name'], usage: measuredUsage(one) }));
    const complete = measured.flatMap(({ name, usage }) =>
      usage === undefined || typeof name !== 'string' ? [] : [{ name, ...usage }],
    );
    // A sum of only some containers would be wrong.
    if (typeof uid === 'string' && complete.length === measured.length && complete.length > 0)
      found.set(uid, { containers: complete });
  }
  return { node: measuredUsage(membersOf(node)), pods: found };
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/;

function measuredUsage({ cpu, memory }: Members): MeasuredUsage | undefined {
  const { time, usageNanoCores: nanoCores } = membersOf(cpu);
  const { workingSetBytes } = membersOf(memory);
  if (!isCount(nanoCores) || !isCount(workingSetBytes)) return undefined;
  if (typeof time !== 'string' || !TIME.test(time) || Number.isNaN(Date.parse(time))) return undefined;
  return { time, nanoCores, workingSetBytes };
}
