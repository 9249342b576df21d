/** Declares the CEL types of the variables of admission expressions: `request`, `namespaceObject` and their parts. */
import type { CelEnvironment } from './cel.ts';
import { bool, type CelType, dyn, int, list, map, string, timestamp } from './types.ts';

/** Declares an object type whose fields are known. */
export function struct(name: string, fields: Readonly<Record<string, CelType>>): CelType {
  return { kind: 'object', name, field: (field) => (Object.hasOwn(fields, field) ? fields[field] : undefined) };
}

const groupVersionKind = struct('kubernetes.GroupVersionKind', { group: string, version: string, kind: string });
const groupVersionResource = struct('kubernetes.GroupVersionResource', {
  group: string,
  version: string,
  resource: string,
});

const userInfo = struct('kubernetes.UserInfo', {
  username: string,
  uid: string,
  groups: list(string),
  extra: map(string, list(string)),
});

/** The type of `request`. */
export const requestType = struct('kubernetes.AdmissionRequest', {
  kind: groupVersionKind,
  resource: groupVersionResource,
  subResource: string,
  requestKind: groupVersionKind,
  requestResource: groupVersionResource,
  requestSubResource: string,
  name: string,
  namespace: string,
  operation: string,
  userInfo,
  dryRun: bool,
  options: dyn,
});

const jsonPatch = struct('JSONPatch', { op: string, path: string, from: string, value: dyn });

/** Returns the type of `Object` or of a part of it. A part is of any type until the patch is applied. */
export const patchObject = (name: string): CelType => ({ kind: 'object', name, field: () => dyn });

/** What the mutations of a policy declare in addition: the types of patches and the library `jsonpatch`. */
export const PATCH_DECLARATIONS: Pick<CelEnvironment, 'message' | 'libraries'> = {
  libraries: { jsonPatch: true },
  message(name) {
    if (name === 'JSONPatch') return jsonPatch;
    return name === 'Object' || name.startsWith('Object.') ? patchObject(name) : undefined;
  },
};

/** The result type of a mutation of type `JSONPatch`. */
export const jsonPatchesType: CelType = list(jsonPatch);

/** The type of `namespaceObject`: the fields of the namespace that policies can read. */
export const namespaceType = struct('kubernetes.Namespace', {
  metadata: struct('kubernetes.NamespaceMetadata', {
    name: string,
    generateName: string,
    namespace: string,
    labels: map(string, string),
    annotations: map(string, string),
    UID: string,
    creationTimestamp: timestamp,
    deletionGracePeriodSeconds: int,
    deletionTimestamp: timestamp,
    generation: int,
    resourceVersion: string,
    finalizers: list(string),
  }),
  spec: struct('kubernetes.NamespaceSpec', { finalizers: list(string) }),
  status: struct('kubernetes.NamespaceStatus', {
    conditions: list(
      struct('kubernetes.NamespaceCondition', {
        status: string,
        type: string,
        lastTransitionTime: timestamp,
        message: string,
        reason: string,
      }),
    ),
    phase: string,
  }),
});
