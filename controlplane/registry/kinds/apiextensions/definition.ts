/** Defines the parts of a CustomResourceDefinition that the server uses: its type, its conditions, and its versions. */
import { formatTime } from '../../../../api/machinery/clock.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { JsonSchema } from '../../schemas/json-schema.ts';

/** Keeps a definition until its objects are deleted. */
export const CLEANUP_FINALIZER = 'customresourcecleanup.apiextensions.k8s.io';
/** Names the approval of an API in a group of Kubernetes, which would otherwise be refused. */
export const APPROVED_ANNOTATION = 'api-approved.kubernetes.io';

/** The names of a resource. Absent ones get their defaults when the definition is stored. */
export interface DefinitionNames {
  plural: string;
  kind: string;
  singular?: string;
  listKind?: string;
  shortNames?: string[];
  categories?: string[];
}

/** A column of the Table. A priority above 0 is shown by `kubectl get -o wide` alone. */
export interface PrinterColumn {
  readonly name: string;
  readonly type: string;
  readonly format?: string;
  readonly description?: string;
  readonly priority?: number;
  readonly jsonPath: string;
}

/** The JSONPaths by which a Scale is read and written. */
export interface ScaleSubresource {
  readonly specReplicasPath: string;
  readonly statusReplicasPath: string;
  readonly labelSelectorPath?: string;
}

/** Which subresources the version has; an empty object enables the status. */
export interface Subresources {
  readonly status?: object;
  readonly scale?: ScaleSubresource;
}

/** A version of the resource. Exactly one has `storage`. */
export interface DefinitionVersion {
  readonly name: string;
  readonly served: boolean;
  readonly storage: boolean;
  readonly deprecated?: boolean;
  readonly deprecationWarning?: string;
  readonly schema?: { readonly openAPIV3Schema?: JsonSchema };
  readonly subresources?: Subresources;
  readonly additionalPrinterColumns?: readonly PrinterColumn[];
  readonly selectableFields?: readonly { readonly jsonPath: string }[];
}

/** The address of a conversion webhook: either `url` or `service`. */
export interface WebhookClientConfig {
  readonly url?: string;
  readonly service?: { readonly namespace: string; readonly name: string; readonly path?: string; port?: number };
  readonly caBundle?: string;
}

/** How objects get from one version to another; the strategy is `None` or `Webhook`. */
export interface DefinitionConversion {
  readonly strategy: string;
  webhook?: {
    readonly clientConfig?: WebhookClientConfig;
    readonly conversionReviewVersions?: readonly string[];
  };
}

interface DefinitionCondition {
  type: string;
  status: string;
  lastTransitionTime?: string;
  reason: string;
  message: string;
}

/** What the server reports about the definition. */
export interface DefinitionStatus {
  conditions?: DefinitionCondition[] | null;
  acceptedNames?: DefinitionNames;
  storedVersions?: string[] | null;
}

/** A CustomResourceDefinition of `apiextensions.k8s.io/v1`, after decoding and defaulting. */
export interface Definition extends KubeObject {
  spec: {
    group: string;
    scope: string;
    names: DefinitionNames;
    versions: DefinitionVersion[];
    conversion?: DefinitionConversion;
    preserveUnknownFields?: boolean;
  };
  status?: DefinitionStatus;
}

/** Returns the condition of that type, or undefined. */
function conditionOf(definition: Definition, type: string): DefinitionCondition | undefined {
  return definition.status?.conditions?.find((condition) => condition.type === type);
}

/** Whether the condition of that type exists and is True. */
export const isTrue = (definition: Definition, type: string): boolean =>
  conditionOf(definition, type)?.status === 'True';

/** Adds or updates the condition. The transition time changes only if the status changes. */
export function setCondition(
  status: DefinitionStatus,
  condition: Omit<DefinitionCondition, 'lastTransitionTime'>,
  nowMs: number,
): void {
  const conditions = (status.conditions ??= []);
  const existing = conditions.find(({ type }) => type === condition.type);
  if (existing === undefined) {
    const { type, status: state, reason, message } = condition;
    conditions.push({ type, status: state, lastTransitionTime: formatTime(nowMs), reason, message });
    return;
  }
  if (existing.status !== condition.status) {
    existing.status = condition.status;
    existing.lastTransitionTime = formatTime(nowMs);
  }
  existing.reason = condition.reason;
  existing.message = condition.message;
}

/** Whether the group belongs to Kubernetes, so that its definitions need an approval. */
export const isProtectedGroup = (group: string): boolean =>
  group === 'k8s.io' || group === 'kubernetes.io' || group.endsWith('.k8s.io') || group.endsWith('.kubernetes.io');

/** Returns the approval in the annotation of a definition in a protected group. */
export function approvalOf(definition: Definition): 'missing' | 'invalid' | 'bypassed' | 'approved' {
  const text = definition.metadata.annotations?.[APPROVED_ANNOTATION] ?? '';
  if (text === '') return 'missing';
  if (text.startsWith('unapproved')) return 'bypassed';
  return URL.canParse(text) && new URL(text).host !== '' ? 'approved' : 'invalid';
}
