/**
 * Decides who may write which part of the status of a ResourceClaim, as kube-apiserver does (`AuthorizedForBinding`,
 * `AuthorizedForDeviceStatus` and `AuthorizedForAdminStatus` in pkg/registry/resource/utils.go). The permission for
 * `resourceclaims/status` alone would let a driver of one node allocate devices of others, or give itself admin access.
 *
 * An allocation and its consumers need the permission for `resourceclaims/binding` in all namespaces. The status of a device
 * needs the permission for `resourceclaims/driver` by the name of the driver, with a verb that begins with `arbitrary-node:`,
 * or with `associated-node:` for a service account on the node of the allocation. It is always on.
 */
import { type FieldError, forbidden } from '../../../api/meta/field-error.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { newForbidden, newInvalid } from '../../../api/meta/status-error.ts';
import type { UserInfo } from '../../model/user-info.ts';
import type { AuthorizationAttributes, Authorizer } from '../authorization/authorization.ts';
import { forbiddenMessage } from '../authorization/union.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './admission.ts';
import { nameOf } from './pod-attributes.ts';
import { ADMIN_ACCESS_LABEL } from '../../../api/meta/well-known-labels.ts';
import { NODE_NAME_EXTRA } from '../../../api/meta/system-users.ts';

const GROUP = 'resource.k8s.io';

interface Device {
  readonly driver?: string;
  readonly pool?: string;
  readonly device?: string;
  readonly shareID?: string;
}

interface NodeSelectorTerm {
  readonly matchExpressions?: readonly unknown[];
  readonly matchFields?: readonly {
    readonly key?: string;
    readonly operator?: string;
    readonly values?: readonly string[];
  }[];
}

interface Allocation {
  readonly devices?: { readonly results?: readonly { readonly adminAccess?: boolean }[] };
  readonly nodeSelector?: { readonly nodeSelectorTerms?: readonly NodeSelectorTerm[] };
}

interface ClaimStatus {
  readonly allocation?: Allocation;
  readonly reservedFor?: readonly unknown[];
  readonly devices?: readonly Device[];
}

interface ClaimStatusOptions {
  readonly authorizer: Authorizer;
  readonly storedNamespace: (name: string) => KubeObject | undefined;
}

/** Builds the plugin. It refuses with a 422, as kube-apiserver does. */
export function claimStatusAuthorization({ authorizer, storedNamespace }: ClaimStatusOptions): AdmissionPlugin {
  return {
    name: 'ResourceClaimStatus',
    handles: (operation) => operation === 'UPDATE',
    async validate(attributes) {
      const { resource, subresource, namespace, kind } = attributes;
      if (resource.group !== GROUP || resource.resource !== 'resourceclaims' || subresource !== 'status') return;
      const status = statusOf(attributes.object);
      const old = statusOf(attributes.oldObject);
      const errors = [
        ...adminErrors(status, old, storedNamespace(namespace)),
        ...(await bindingErrors(attributes, authorizer, { status, old })),
        ...(await deviceErrors(attributes, authorizer, { status, old })),
      ];
      if (errors.length > 0) throw newInvalid({ group: kind.group, resource: kind.kind }, nameOf(attributes), errors);
    },
  };
}

const statusOf = (object: KubeObject | undefined): ClaimStatus => (object?.['status'] ?? {}) as ClaimStatus;

function adminErrors(status: ClaimStatus, old: ClaimStatus, namespace: KubeObject | undefined): FieldError[] {
  const grantedAt = ({ allocation }: ClaimStatus): number =>
    (allocation?.devices?.results ?? []).findIndex(({ adminAccess }) => adminAccess === true);
  const at = grantedAt(status);
  // An allocation does not change once it is there.
  if (at < 0 || grantedAt(old) >= 0 || namespace?.metadata.labels?.[ADMIN_ACCESS_LABEL] === 'true') return [];
  const text = `admin access to devices requires the \`${ADMIN_ACCESS_LABEL}: true\` label on the containing namespace`;
  return [forbidden(`status.allocation.devices.results[${at}].adminAccess`, text)];
}

interface Change {
  readonly status: ClaimStatus;
  readonly old: ClaimStatus;
}

async function bindingErrors(
  attributes: AdmissionAttributes,
  authorizer: Authorizer,
  { status, old }: Change,
): Promise<FieldError[]> {
  if (semanticEqual(status.allocation, old.allocation) && semanticEqual(status.reservedFor, old.reservedFor)) return [];
  const verb = verbOf(attributes);
  const request = attributesFor(attributes, { verb, subresource: 'binding', namespace: '', name: '' });
  const refused = await refusalOf(authorizer, request);
  if (refused === undefined) return [];
  const needed = `resource="resourceclaims/binding", verb="${verb}" permission`;
  return [
    forbidden('status.allocation', `changing status.allocation or status.reservedFor requires ${needed}: ${refused}`),
  ];
}

/**
 * Returns an error for each driver whose device statuses the user may not change. Without an allocation, the statuses are
 * dropped, and `bindingErrors` checks the permission to remove the allocation.
 */
async function deviceErrors(
  attributes: AdmissionAttributes,
  authorizer: Authorizer,
  { status, old }: Change,
): Promise<FieldError[]> {
  if (status.allocation === undefined) return [];
  const node = nodeOf(status.allocation);
  const verb = verbOf(attributes);
  const onNode = node !== undefined && isOnNode(attributes.user, node);
  const verbs = [...(onNode ? [`associated-node:${verb}`] : []), `arbitrary-node:${verb}`];
  const errors: FieldError[] = [];
  for (const name of changedDrivers(status, old)) {
    const refused = await firstRefusal(
      authorizer,
      verbs.map((one) =>
        attributesFor(attributes, { verb: one, subresource: 'driver', namespace: attributes.namespace, name }),
      ),
    );
    if (refused === undefined) continue;
    const needed = `resource="resourceclaims/driver", verb="[${verbs.join(' ')}]" permission`;
    errors.push(forbidden('status.devices', `changing status.devices requires ${needed}: ${refused}`));
  }
  return errors;
}

/** Returns why the first request is refused, or `undefined` if one of the requests is allowed. */
async function firstRefusal(
  authorizer: Authorizer,
  requests: readonly AuthorizationAttributes[],
): Promise<string | undefined> {
  let first: string | undefined;
  for (const one of requests) {
    const refused = await refusalOf(authorizer, one);
    if (refused === undefined) return undefined;
    first ??= refused;
  }
  return first;
}

/** Resolves to why the request is refused, or to `undefined` if it is allowed. */
async function refusalOf(authorizer: Authorizer, request: AuthorizationAttributes): Promise<string | undefined> {
  const { decision, reason } = await authorizer.authorize(request);
  if (decision === 'allow') return undefined;
  const { group, resource, name } = request;
  return newForbidden({ group, resource }, name, `${forbiddenMessage(request)}${reason === '' ? '' : `: ${reason}`}`)
    .message;
}

function attributesFor(
  { user, resource: { group, version, resource } }: AdmissionAttributes,
  target: Pick<AuthorizationAttributes, 'verb' | 'subresource' | 'namespace' | 'name'>,
): AuthorizationAttributes {
  return { user, isResourceRequest: true, group, version, resource, path: '', ...target };
}

const verbOf = ({ isPatch }: AdmissionAttributes): 'patch' | 'update' => (isPatch === true ? 'patch' : 'update');

/** Returns the names of the drivers whose entries were added, changed or removed, sorted. */
function changedDrivers(status: ClaimStatus, old: ClaimStatus): string[] {
  const keyOf = ({ driver = '', pool = '', device = '', shareID = '' }: Device): string =>
    `${driver}/${pool}/${device}/${shareID}`;
  const before = new Map((old.devices ?? []).map((device) => [keyOf(device), device]));
  const changed = new Set<string>();
  for (const device of status.devices ?? []) {
    const key = keyOf(device);
    if (!semanticEqual(before.get(key), device)) changed.add(device.driver ?? '');
    before.delete(key);
  }
  for (const { driver = '' } of before.values()) changed.add(driver);
  return [...changed].sort();
}

/** Returns the node to which the allocation is restricted by its name, if it is restricted to one. */
function nodeOf({ nodeSelector }: Allocation): string | undefined {
  const [term, ...others] = nodeSelector?.nodeSelectorTerms ?? [];
  if (term === undefined || others.length > 0 || (term.matchExpressions ?? []).length > 0) return undefined;
  const [field, ...more] = term.matchFields ?? [];
  if (field?.key !== 'metadata.name' || field.operator !== 'In' || more.length > 0) return undefined;
  return field.values?.length === 1 ? field.values[0] : undefined;
}

function isOnNode({ name, extra }: UserInfo, node: string): boolean {
  const nodes = extra?.[NODE_NAME_EXTRA] ?? [];
  return name.startsWith('system:serviceaccount:') && nodes.length === 1 && nodes[0] === node && node !== '';
}
