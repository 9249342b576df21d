/**
 * Maintains the FlowSchemas and PriorityLevelConfigurations that every cluster has, and the status of flow schemas, like
 * kube-apiserver.
 *
 * Mandatory objects are always restored, except the specification of the level `exempt`. Suggested ones are created if they are
 * missing, and updated while `apf.kubernetes.io/autoupdate-spec` is true, or absent from an object that no client has changed.
 * Objects with the annotation that are no longer suggested are deleted.
 */
import { quoteText } from '../../../api/meta/quote.ts';
import type { Client } from '../../../api/client/client.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import { flowSchemas, priorityLevelConfigurations, type ResourceOf } from '../../../api/client/resources.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { tolerateRaces } from '../../../api/meta/status-error.ts';
import { objectsByName } from './existing-objects.ts';
import {
  MANDATORY_LEVELS,
  MANDATORY_SCHEMAS,
  SUGGESTED_LEVELS,
  SUGGESTED_SCHEMAS,
} from '../../registry/kinds/flowcontrol/flowcontrol-defaults.ts';
import type { FlowSchema } from '../../registry/kinds/flowcontrol/flowcontrol-types.ts';

const AUTOUPDATE = 'apf.kubernetes.io/autoupdate-spec';
const API_VERSION = 'flowcontrol.apiserver.k8s.io/v1';

/** The name of kube-apiserver's part that writes these objects, in managed fields. */
const BY_PRODUCER = { fieldManager: 'api-priority-and-fairness-config-producer-v1' };

type Specs = Readonly<Record<string, object>>;

/**
 * Creates and updates the default objects of priority and fairness. Rejects with the first error of the API that is no conflict
 * with a server that writes the same.
 */
export async function ensureFlowControl(client: Client): Promise<void> {
  await Promise.all([
    ensure(client, priorityLevelConfigurations, MANDATORY_LEVELS, SUGGESTED_LEVELS),
    ensure(client, flowSchemas, MANDATORY_SCHEMAS, SUGGESTED_SCHEMAS),
  ]);
}

async function ensure<T extends KubeObject>(
  client: Client,
  resource: ResourceOf<T>,
  mandatory: Specs,
  suggested: Specs,
): Promise<void> {
  const existing = await objectsByName(client, resource);
  if (existing === undefined) return;
  const writes = Object.entries({ ...suggested, ...mandatory }).flatMap(([name, spec]) => {
    const found = existing.get(name);
    if (found === undefined) return [client.create(resource, '', newObject(resource, name, spec), BY_PRODUCER)];
    const isMaintained = Object.hasOwn(mandatory, name) || followsDefinition(found);
    // An administrator may set the shares of the level `exempt`.
    const isUpToDate = (name === 'exempt' && isLevelSpec(spec)) || semanticEqual(found['spec'], spec);
    if (!isMaintained || (isUpToDate && found.metadata.annotations?.[AUTOUPDATE] === 'true')) return [];
    const { metadata } = found;
    const annotations = { ...metadata.annotations, [AUTOUPDATE]: 'true' };
    const nextSpec = isUpToDate ? found['spec'] : structuredClone(spec);
    return [client.update(resource, { ...found, metadata: { ...metadata, annotations }, spec: nextSpec }, BY_PRODUCER)];
  });
  const wanted = (name: string): boolean => Object.hasOwn(mandatory, name) || Object.hasOwn(suggested, name);
  const deletions = [...existing]
    .filter(([name, { metadata }]) => !wanted(name) && metadata.annotations?.[AUTOUPDATE] === 'true')
    .map(([name]) => client.delete(resource, '', name));
  await Promise.all([...writes, ...deletions].map(tolerateRaces));
}

const newObject = (resource: { readonly kind: string }, name: string, spec: object): KubeObject => ({
  apiVersion: API_VERSION,
  kind: resource.kind,
  metadata: { name, annotations: { [AUTOUPDATE]: 'true' } },
  spec: structuredClone(spec),
});

/** Whether it is the specification of a priority level, and not of the flow schema of that name. */
const isLevelSpec = (spec: object): boolean => 'type' in spec;

function followsDefinition({ metadata }: KubeObject): boolean {
  const value = metadata.annotations?.[AUTOUPDATE];
  return value === undefined ? metadata.generation === 1 : value === 'true';
}

const DANGLING = 'Dangling';
const STATUS_MANAGER = 'api-priority-and-fairness-config-consumer-v1';

/** Writes the condition Dangling of those flow schemas where it does not match the existing priority levels. */
export async function keepDanglingConditions(
  client: Client,
  schemas: readonly FlowSchema[],
  levelExists: (name: string) => boolean,
  nowMs: number,
): Promise<void> {
  const writes = schemas.flatMap((schema) => {
    const level = schema.spec?.priorityLevelConfiguration?.name ?? '';
    const found = danglingCondition(level, levelExists(level));
    const current = schema.status?.conditions?.find(({ type }) => type === DANGLING);
    const { status, reason, message } = found;
    if (current?.status === status && current.reason === reason && current.message === message) return [];
    const isTransition = current?.status !== status || current.lastTransitionTime === undefined;
    const lastTransitionTime = isTransition ? formatTime(nowMs) : current.lastTransitionTime;
    const { name = '', uid } = schema.metadata;
    const patch = {
      apiVersion: API_VERSION,
      kind: 'FlowSchema',
      metadata: { name, ...(uid === undefined ? {} : { uid }) },
      status: { conditions: [{ ...found, lastTransitionTime }] },
    };
    const options = { subresource: 'status', fieldManager: STATUS_MANAGER, force: true };
    return [client.patch(flowSchemas, '', name, { type: 'apply', body: patch, ...options })];
  });
  await Promise.all(writes.map(tolerateRaces));
}

function danglingCondition(
  level: string,
  exists: boolean,
): { type: string; status: string; reason: string; message: string } {
  const named = `This FlowSchema references the PriorityLevelConfiguration object named ${quoteText(level)}`;
  return exists
    ? { type: DANGLING, status: 'False', reason: 'Found', message: `${named} and it exists` }
    : { type: DANGLING, status: 'True', reason: 'NotFound', message: `${named} but there is no such object` };
}
