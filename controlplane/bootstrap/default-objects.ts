/**
 * Objects that every cluster has from the start beside its roles: flow schemas and priority levels, priority classes, the
 * range of service addresses, and one APIService for each group version that this server serves itself.
 *
 * Called once at start, when the API can be written. Missing objects are created; what an administrator changed stays, except
 * for flow control objects. Safe to run again and beside another server that does the same.
 */
import type { Client } from '../../api/machinery/client.ts';
import type { ResourceOf } from '../../api/machinery/resources.ts';
import { apiServices, configMaps, priorityClasses } from '../../api/machinery/resources.ts';
import type { GroupVersion, KubeObject } from '../../api/meta/object.ts';
import { isAlreadyExists, isConflict, isNotFound } from '../../api/meta/status-error.ts';
import { ensureFlowControl } from './flow-control-objects.ts';
import { ensureDefaultRange } from './default-service-range.ts';
import { SYSTEM_PRIORITY_CLASSES } from '../registry/kinds/policy/policy.ts';
import { localApiPriorities } from '../registry/kinds/apiregistration/api-service-priorities.ts';

export interface DefaultObjectsOptions {
  /** What is served and built in. */
  readonly groupVersions: readonly GroupVersion[];
  /** `--service-cluster-ip-range`. */
  readonly serviceClusterCidrs: readonly string[];
  readonly nowMs: number;
}

export async function ensureDefaultObjects(client: Client, options: DefaultObjectsOptions): Promise<void> {
  await Promise.all([
    ensureFlowControl(client),
    ensurePriorityClasses(client),
    ensureTokenTracking(client, options.nowMs),
    ensureDefaultRange(client, options.serviceClusterCidrs),
    ensureApiServices(client, options.groupVersions),
  ]);
}

/** Another server may have done the same meanwhile. */
async function tolerating(write: Promise<unknown>): Promise<void> {
  try {
    await write;
  } catch (error) {
    if (!isAlreadyExists(error) && !isConflict(error) && !isNotFound(error)) throw error;
  }
}

async function byName<T extends KubeObject>(client: Client, resource: ResourceOf<T>): Promise<Map<string, KubeObject>> {
  try {
    const { items } = await client.list(resource);
    return new Map(items.map((object) => [object.metadata.name ?? '', object]));
  } catch (error) {
    // --runtime-config may leave the kind out.
    if (isNotFound(error)) return new Map();
    throw error;
  }
}

// --- priority classes

async function ensurePriorityClasses(client: Client): Promise<void> {
  const existing = await byName(client, priorityClasses);
  await Promise.all(
    SYSTEM_PRIORITY_CLASSES.filter(({ name }) => !existing.has(name)).map(({ name, value, description }) =>
      tolerating(
        client.create(priorityClasses, '', {
          apiVersion: 'scheduling.k8s.io/v1',
          kind: 'PriorityClass',
          metadata: { name },
          value,
          description,
        } as KubeObject),
      ),
    ),
  );
}

/** Since when the use of tokens in secrets is marked: what was not used since then may go after a year. */
async function ensureTokenTracking(client: Client, nowMs: number): Promise<void> {
  const name = 'kube-apiserver-legacy-service-account-token-tracking';
  const existing = await client.list(configMaps, { namespace: 'kube-system', fieldSelector: `metadata.name=${name}` });
  if (existing.items.length > 0) return;
  const since = new Date(nowMs).toISOString().slice(0, 10);
  await tolerating(
    client.create(configMaps, 'kube-system', {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name, namespace: 'kube-system' },
      data: { since },
    } as KubeObject),
  );
}

// --- API services

const MANAGED = 'kube-aggregator.kubernetes.io/automanaged';
const ON_START = 'onstart';

/** One for each group version that is served here; those of an earlier start that are not served any more go. */
async function ensureApiServices(client: Client, groupVersions: readonly GroupVersion[]): Promise<void> {
  const existing = await byName(client, apiServices);
  const wanted = new Map(groupVersions.map((gv) => [`${gv.version}.${gv.group}`, gv]));
  const writes: Promise<void>[] = [];
  for (const [name, { group, version }] of wanted) {
    if (existing.has(name)) continue;
    const priorities = localApiPriorities(group, version);
    const object = {
      apiVersion: 'apiregistration.k8s.io/v1',
      kind: 'APIService',
      metadata: { name, labels: { [MANAGED]: ON_START } },
      spec: { ...(group === '' ? {} : { group }), version, ...priorities },
    };
    writes.push(tolerating(client.create(apiServices, '', object)));
  }
  for (const [name, object] of existing) {
    if (!wanted.has(name) && object.metadata.labels?.[MANAGED] === ON_START)
      writes.push(tolerating(client.delete(apiServices, '', name)));
  }
  await Promise.all(writes);
}
