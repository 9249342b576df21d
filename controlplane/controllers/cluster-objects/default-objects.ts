/**
 * Creates the objects that every cluster has from the start beside its roles: flow schemas and priority levels, priority
 * classes, the date from which the use of tokens is recorded, the range of service addresses, and one APIService for each group
 * version that this server serves itself.
 *
 * Changes of an administrator stay, except for those of flow control objects.
 */
import type { Client } from '../../../api/client/client.ts';
import { apiServices, configMaps, priorityClasses } from '../../../api/client/resources.ts';
import type { GroupVersion, KubeObject } from '../../../api/meta/object.ts';
import { tolerateRaces } from '../../../api/meta/status-error.ts';
import { createIfMissing, objectsByName } from './existing-objects.ts';
import { ensureFlowControl } from './flow-control-objects.ts';
import { ensureDefaultRange } from './default-service-range.ts';
import { SYSTEM_PRIORITY_CLASSES } from '../../registry/kinds/scheduling/scheduling.ts';
import { METRICS_API } from '../metrics-api/metrics-api.ts';
import { localApiPriorities } from '../../registry/kinds/apiregistration/api-service-priorities.ts';
import { SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

interface DefaultObjectsOptions {
  /** The built-in group versions that are served. */
  readonly groupVersions: readonly GroupVersion[];
  /** The value of `--service-cluster-ip-range`. */
  readonly serviceClusterCidrs: readonly string[];
  readonly nowMs: number;
}

/** Creates the objects that every cluster has. Rejects with the first error, unless it is a conflict with another server. */
export async function ensureDefaultObjects(client: Client, options: DefaultObjectsOptions): Promise<void> {
  await Promise.all([
    ensureFlowControl(client),
    ensurePriorityClasses(client),
    ensureTokenTracking(client, options.nowMs),
    ensureDefaultRange(client, options.serviceClusterCidrs),
    ensureApiServices(client, options.groupVersions),
  ]);
}

async function ensurePriorityClasses(client: Client): Promise<void> {
  const existing = await objectsByName(client, priorityClasses);
  if (existing === undefined) return;
  await Promise.all(
    SYSTEM_PRIORITY_CLASSES.filter(({ name }) => !existing.has(name)).map(({ name, value, description }) =>
      createIfMissing(client, priorityClasses, {
        apiVersion: 'scheduling.k8s.io/v1',
        kind: 'PriorityClass',
        metadata: { name },
        value,
        description,
      } as KubeObject),
    ),
  );
}

/** Records the day since which the API server marks Secrets whose tokens are used. */
async function ensureTokenTracking(client: Client, nowMs: number): Promise<void> {
  const name = 'kube-apiserver-legacy-service-account-token-tracking';
  const existing = await client.list(configMaps, {
    namespace: SYSTEM_NAMESPACE,
    fieldSelector: `metadata.name=${name}`,
  });
  if (existing.items.length > 0) return;
  const since = new Date(nowMs).toISOString().slice(0, 10);
  await createIfMissing(client, configMaps, {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name, namespace: SYSTEM_NAMESPACE },
    data: { since },
  } as KubeObject);
}

const MANAGED = 'kube-aggregator.kubernetes.io/automanaged';
const ON_START = 'onstart';

/** Whether a start created the APIService, and not an administrator or the server of an add-on. */
function isOurs(object: KubeObject): boolean {
  const { group, service } = (object['spec'] ?? {}) as { group?: string; service?: object };
  return object.metadata.labels?.[MANAGED] === ON_START || (group === METRICS_API.group && service === undefined);
}

/** The group of API services. As in kube-apiserver, it has none of its own. */
const OWN_GROUP = 'apiregistration.k8s.io';

/**
 * Creates an APIService for each group version that is served here, and deletes those of an earlier start that are no longer
 * served.
 */
async function ensureApiServices(client: Client, groupVersions: readonly GroupVersion[]): Promise<void> {
  const existing = await objectsByName(client, apiServices);
  if (existing === undefined) return;
  const others = groupVersions.filter(({ group }) => group !== OWN_GROUP);
  const wanted = new Map(others.map((gv) => [`${gv.version}.${gv.group}`, gv]));
  const writes: Promise<void>[] = [];
  for (const [name, { group, version }] of wanted) {
    if (existing.has(name)) continue;
    const priorities = localApiPriorities(group, version);
    const object = {
      apiVersion: 'apiregistration.k8s.io/v1',
      kind: 'APIService',
      // Clusters get the metrics API from an add-on, whose API service has labels of its own.
      metadata: group === METRICS_API.group ? { name } : { name, labels: { [MANAGED]: ON_START } },
      spec: { ...(group === '' ? {} : { group }), version, ...priorities },
    };
    writes.push(createIfMissing(client, apiServices, object));
  }
  for (const [name, object] of existing) {
    if (!wanted.has(name) && isOurs(object)) writes.push(tolerateRaces(client.delete(apiServices, '', name)));
  }
  await Promise.all(writes);
}
