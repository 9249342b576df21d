/**
 * Serves `metrics.k8s.io/v1beta1`: the resource usage of nodes and pods, for `kubectl top` and autoscalers. Nothing is stored:
 * names and labels come from the nodes and pods, and the usage comes from the agents.
 */
import type { KubeObject } from '../../../api/meta/object.ts';
import { isStatusError, newNotFound } from '../../../api/meta/status-error.ts';
import type { ResourceInfo } from '../../../api/schema/schema.ts';
import { agentOrigin } from '../../registry/kinds/core/connections.ts';
import type { ListOptions, RequestContext, Rest } from '../../model/rest.ts';
import { currentEntry, listEntries } from '../../registry/store-read.ts';
import { unstoredEntry, type StoredResource } from '../../registry/store.ts';
import type { AgentSummaries, NodeSummary, MeasuredUsage } from './agent-summaries.ts';

/** The group and version that autoscalers and `kubectl top` request. */
export const METRICS_API = { group: 'metrics.k8s.io', version: 'v1beta1' } as const;

const GROUP = METRICS_API.group;
const VERSION = METRICS_API.version;
const API_VERSION = `${GROUP}/${VERSION}`;
/** The approximate time over which rates are measured. */
const WINDOW = '15s';

/** Where nodes, pods and their usage come from. */
interface MetricsApiOptions {
  readonly nodes: StoredResource;
  readonly pods: StoredResource;
  readonly summaries: AgentSummaries;
  /** The types of a node's addresses at which its agent is called, in order. */
  readonly addressTypes: readonly string[];
}

interface PodLike extends KubeObject {
  readonly spec?: { readonly nodeName?: string };
}

/** Returns the two read-only resources `nodes` and `pods` of the group. */
export function metricsRests({ nodes, pods, summaries, addressTypes }: MetricsApiOptions): readonly Rest[] {
  const summaryOf = async (name: string): Promise<NodeSummary | undefined> => {
    const origin = agentOrigin(nodeNamed(nodes, name), addressTypes);
    return origin === undefined ? undefined : summaries.of(name, origin);
  };
  const nodeMetrics = async (node: KubeObject): Promise<KubeObject | undefined> => {
    const measured = (await summaryOf(node.metadata.name ?? ''))?.node;
    return measured === undefined
      ? undefined
      : describe('NodeMetrics', node, measured.time, { usage: usageOf(measured) });
  };
  const podMetrics = async (pod: PodLike): Promise<KubeObject | undefined> => {
    const node = pod.spec?.nodeName ?? '';
    if (node === '') return undefined;
    const measured = (await summaryOf(node))?.pods.get(pod.metadata.uid ?? '');
    if (measured === undefined) return undefined;
    return describe('PodMetrics', pod, measured.containers[0]?.time ?? '', {
      containers: measured.containers.map((container) => ({ name: container.name, usage: usageOf(container) })),
    });
  };
  return [
    rest(info({ resource: 'nodes', kind: 'NodeMetrics', namespaced: false }), nodes, nodeMetrics),
    rest(info({ resource: 'pods', kind: 'PodMetrics', namespaced: true }), pods, podMetrics),
  ];
}

function info(served: Pick<ResourceInfo, 'resource' | 'kind' | 'namespaced'>): ResourceInfo {
  const verbs = ['get', 'list'];
  return {
    group: GROUP,
    version: VERSION,
    ...served,
    singular: '',
    shortNames: [],
    categories: [],
    verbs,
    subresources: [],
  };
}

function nodeNamed(nodes: StoredResource, name: string): KubeObject {
  try {
    return currentEntry(nodes, '', name).object;
  } catch (error) {
    // The node of the pod is deleted, so no agent reports its usage.
    if (isStatusError(error)) return { metadata: { name } };
    throw error;
  }
}

function rest(
  row: ResourceInfo,
  store: StoredResource,
  measure: (object: KubeObject) => Promise<KubeObject | undefined>,
): Rest {
  const subject = { group: GROUP, resource: row.resource };
  return {
    info: row,
    subresource: undefined,
    async get(_context, namespace, name) {
      const found = store.cache.get(namespace, name);
      const measured = found === undefined ? undefined : await measure(found.object);
      if (measured === undefined) throw newNotFound(subject, row.namespaced ? `${namespace}/${name}` : name);
      return unstoredEntry(measured);
    },
    async list(context: RequestContext, namespace: string, options: ListOptions) {
      const wanted = { ...options, resourceVersion: '', resourceVersionMatch: '' as const, limit: 0, continue: '' };
      const { entries } = await listEntries(store, context, { namespace }, wanted);
      const measured = await Promise.all(entries.map((entry) => measure(entry.object)));
      return {
        entries: measured.flatMap((object) => (object === undefined ? [] : [unstoredEntry(object)])),
        resourceVersion: '',
        continue: '',
        remainingItemCount: undefined,
      };
    },
  };
}

function describe(kind: string, { metadata }: KubeObject, time: string, usageFields: object): KubeObject {
  const { name = '', namespace, labels } = metadata;
  return {
    kind,
    apiVersion: API_VERSION,
    metadata: {
      name,
      ...(namespace === undefined ? {} : { namespace }),
      creationTimestamp: time,
      ...(labels === undefined ? {} : { labels }),
    },
    timestamp: time,
    window: WINDOW,
    ...usageFields,
  };
}

/** Formats the usage in nanocores and KiB, as metrics-server does. */
function usageOf({ nanoCores, workingSetBytes }: MeasuredUsage): { readonly cpu: string; readonly memory: string } {
  return { cpu: nanoCores === 0 ? '0' : `${nanoCores}n`, memory: `${Math.floor(workingSetBytes / 1024)}Ki` };
}
