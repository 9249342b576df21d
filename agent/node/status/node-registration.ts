/**
 * Registers the node with the API server: creates it, or adopts an existing one. The agent owns some labels and annotations
 * of an existing node and leaves the others as they are; taints apply to a new node only.
 */
import type { Client } from '../../../api/client/client.ts';
import { nodes } from '../../../api/client/resources.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { isAlreadyExists, isNotFound } from '../../../api/meta/status-error.ts';
import { systemInfo } from '../../host/host-facts.ts';
import type { NodeObject } from '../../base/model/node.ts';
import {
  ARCH_LABEL,
  BETA_ARCH_LABEL,
  BETA_OS_LABEL,
  HOSTNAME_LABEL,
  OS_LABEL,
  CONTROLLER_ATTACHES_ANNOTATION,
} from '../../../api/meta/well-known-labels.ts';

/**
 * What the agent states about its node when it registers it: the flags `--node-labels`, `--register-with-taints` and others.
 */
export interface NodeIdentity {
  readonly nodeName: string;
  readonly registerSchedulable: boolean;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly { readonly key: string; readonly value?: string; readonly effect: string }[];
  readonly providerId: string;
  readonly annotations: Readonly<Record<string, string>>;
}

interface Registration {
  /** The value of `--register-node`. If false, another client must create the node. */
  readonly registerNode: boolean;
  /** Returns the node with its first status. */
  readonly firstStatus: (initial: NodeObject) => Promise<NodeObject>;
}

/** Returns the node as the agent creates it, without status. */
export function initialNode({
  nodeName,
  labels,
  taints,
  providerId,
  registerSchedulable,
  annotations,
}: NodeIdentity): NodeObject {
  const system = systemInfo();
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: {
      name: nodeName,
      labels: {
        [HOSTNAME_LABEL]: nodeName,
        [OS_LABEL]: system.operatingSystem,
        [ARCH_LABEL]: system.architecture,
        [BETA_OS_LABEL]: system.operatingSystem,
        [BETA_ARCH_LABEL]: system.architecture,
        ...labels,
      },
      annotations: { ...annotations },
    },
    spec: {
      ...(providerId === '' ? {} : { providerID: providerId }),
      ...(registerSchedulable && taints.length === 0 ? {} : { taints: [...taints] }),
      ...(registerSchedulable ? {} : { unschedulable: true }),
    },
  } as unknown as NodeObject;
}

/**
 * Creates the Node object, or adopts the existing one. Without `registerNode`, changes nothing, and throws NotFound if
 * another client has not created the node.
 */
export async function registerWithApi(
  client: Client,
  identity: NodeIdentity,
  registration: Registration,
): Promise<{ readonly node: NodeObject; readonly isNew: boolean }> {
  const existing = await find(client, identity.nodeName, registration);
  if (existing !== undefined) return { node: await adopt(client, identity, existing, registration), isNew: false };
  const wanted = await registration.firstStatus(initialNode(identity));
  try {
    const created = (await client.create(nodes, '', wanted as unknown as KubeObject)) as unknown as NodeObject;
    return { node: created, isNew: true };
  } catch (error) {
    if (!isAlreadyExists(error)) throw error;
    return registerWithApi(client, identity, registration);
  }
}

async function find(client: Client, name: string, { registerNode }: Registration): Promise<NodeObject | undefined> {
  try {
    return (await client.get(nodes, '', name)) as unknown as NodeObject;
  } catch (error) {
    if (!isNotFound(error) || !registerNode) throw error;
    return undefined;
  }
}

async function adopt(
  client: Client,
  identity: NodeIdentity,
  existing: NodeObject,
  { registerNode }: Registration,
): Promise<NodeObject> {
  const labels = changed(initialNode(identity).metadata.labels ?? {}, existing.metadata.labels ?? {});
  const annotations = annotationChanges(identity.annotations, existing.metadata.annotations ?? {});
  if (!registerNode || (labels.length === 0 && annotations.length === 0)) return existing;
  const patched = await client.patch(nodes, '', identity.nodeName, {
    type: 'strategic',
    body: {
      metadata: {
        ...(labels.length === 0 ? {} : { labels: Object.fromEntries(labels) }),
        ...(annotations.length === 0 ? {} : { annotations: Object.fromEntries(annotations) }),
      },
    },
  });
  return patched as unknown as NodeObject;
}

type Values = Readonly<Record<string, string>>;

function changed(wanted: Values, found: Values): readonly (readonly [string, string])[] {
  return Object.entries(wanted).filter(([key, value]) => found[key] !== value);
}

/** Returns the annotations that change. Null removes one that the agent no longer sets. */
function annotationChanges(wanted: Values, found: Values): readonly (readonly [string, string | null])[] {
  const isStale =
    wanted[CONTROLLER_ATTACHES_ANNOTATION] === undefined && found[CONTROLLER_ATTACHES_ANNOTATION] !== undefined;
  return [...changed(wanted, found), ...(isStale ? [[CONTROLLER_ATTACHES_ANNOTATION, null] as const] : [])];
}
