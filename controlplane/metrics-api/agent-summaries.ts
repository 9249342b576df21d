/**
 * Resource usage of nodes and their pods, from the summaries of the agents. It is requested from all nodes at the same time,
 * when a client needs it, and cached for a quarter of a minute. A node that does not respond has no usage for that time.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import type { Origin } from '../model/rest.ts';
import { type AgentConnection, requestAgent } from '../registry/kinds/core/agent-request.ts';

export interface MeasuredUsage {
  /** RFC 3339. */
  readonly time: string;
  readonly nanoCores: number;
  readonly workingSetBytes: number;
}

export interface NodeSummary {
  readonly node: MeasuredUsage | undefined;
  /** The summaries by pod uid. */
  readonly pods: ReadonlyMap<string, PodSummary>;
}

export interface PodSummary {
  readonly containers: readonly (MeasuredUsage & { readonly name: string })[];
}

export interface AgentSummariesOptions extends AgentConnection {
  readonly clock: Clock;
  readonly onFailure: (node: string, error: unknown) => void;
}

export interface AgentSummaries {
  /** `undefined` if the node does not respond. */
  of(node: string, origin: Origin): Promise<NodeSummary | undefined>;
}

const KEPT_MS = 15_000;
const TIMEOUT_MS = 5_000;
const LARGEST_BYTES = 64 << 20;

export function createAgentSummaries(options: AgentSummariesOptions): AgentSummaries {
  const kept = new Map<string, { readonly atMs: number; readonly answer: Promise<NodeSummary | undefined> }>();
  return {
    of(node, origin) {
      const nowMs = options.clock.monotonic();
      for (const [name, { atMs }] of kept) if (nowMs - atMs > KEPT_MS) kept.delete(name);
      const known = kept.get(node);
      if (known !== undefined) return known.answer;
      const answer = ask(node, origin, options).then(parseSummary, (error: unknown) => {
        options.onFailure(node, error);
        return undefined;
      });
      kept.set(node, { atMs: nowMs, answer });
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
    timeoutMs: TIMEOUT_MS,
    largestBytes: LARGEST_BYTES,
  });
}

interface WireUsage {
  readonly name?: string;
  readonly cpu?: { readonly time?: string; readonly usageNanoCores?: number };
  readonly memory?: { readonly workingSetBytes?: number };
}

interface WireSummary {
  readonly node?: WireUsage;
  readonly pods?: readonly {
    readonly podRef?: { readonly uid?: string };
    readonly containers?: readonly WireUsage[];
  }[];
}

/** Containers without a rate yet, because they have just started, are omitted. Pure. */
export function parseSummary(answer: unknown): NodeSummary {
  const { node, pods = [] } = answer as WireSummary;
  const found = new Map<string, PodSummary>();
  for (const { podRef, containers = [] } of pods) {
    const measured = containers.map((container) => ({ name: container.name ?? '', usage: measuredUsage(container) }));
    const complete = measured.flatMap(({ name, usage }) => (usage === undefined ? [] : [{ name, ...usage }]));
    // A sum of only some containers would be wrong.
    if (podRef?.uid !== undefined && complete.length === measured.length && complete.length > 0)
      found.set(podRef.uid, { containers: complete });
  }
  return { node: node === undefined ? undefined : measuredUsage(node), pods: found };
}

function measuredUsage({ cpu, memory }: WireUsage): MeasuredUsage | undefined {
  if (cpu?.usageNanoCores === undefined || memory?.workingSetBytes === undefined) return undefined;
  return { time: cpu.time ?? '', nanoCores: cpu.usageNanoCores, workingSetBytes: memory.workingSetBytes };
}
