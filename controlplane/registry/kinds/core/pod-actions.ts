/**
 * Binds a pod to a node, by the resource `bindings` or the subresource `binding` of pods, and provides what the actions on pods
 * share.
 */
import { quoteText } from '../../../../api/meta/quote.ts';
import type { V1Binding } from '@kubernetes/client-node';
import type { Pod } from '../../../../api/kinds/pod-types.ts';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { formatTime } from '../../../../api/machinery/clock.ts';
import { required, unsupportedValue } from '../../../../api/meta/field-error.ts';
import { cloneJson } from '../../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { newBadRequest, newConflict, newErrorWithoutReason } from '../../../../api/meta/status-error.ts';
import type { Schema, SubresourceInfo, ResourceInfo } from '../../../../api/schema/schema.ts';
import { builtInReader, type Decoder, type ExpectedKind } from '../../object-decoding.ts';
import { matchNamespace } from '../../object-identity.ts';
import { writeOptionsObject } from '../../resource-rest.ts';
import { atOnce } from '../../../../api/machinery/pausing.ts';
import type { Entry, RequestContext, Rest, WriteOptions } from '../../../model/rest.ts';
import { changeEntry } from '../../store-write.ts';
import { preconditionConflict } from '../../write-conflicts.ts';
import { admissionAttributes, unstoredEntry, type Endpoint, type Store } from '../../store.ts';

type Binding = Kind<Pick<V1Binding, 'target'>>;

/** What actions on pods use. */
export interface ActionParts {
  readonly pods: Store;
  readonly schema: Schema;
  readonly decoder: Decoder;
}

/** Returns the response to a successful action. */
export function done(): Entry {
  return unstoredEntry({ kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success', code: 201 });
}

/** Returns how the body of a subresource is decoded. Throws if the schema lacks the kind, which is a fault of the program. */
export function expectedOf(schema: Schema, group: string, version: string, kind: string): ExpectedKind {
  const struct = schema.kind(group, version, kind);
  if (struct === undefined) throw new Error(`the schema lacks ${kind}`);
  return { group, version, kind, struct, reader: builtInReader, applyDefaults: undefined };
}

/** Returns an endpoint without a strategy of its own, because an action validates its body itself. */
export function endpointOf(info: ResourceInfo, subresource: string, kind: Endpoint['kind']): Endpoint {
  return { info, subresource, kind, strategy: {} };
}

/**
 * Serves the subresource `binding` of pods or, without `subresource`, the resource `bindings`. A create rejects with a 400 for
 * a body with another name than the path, and with the errors of `bind`.
 */
export function createBindingRest(
  parts: ActionParts,
  info: ResourceInfo,
  subresource: SubresourceInfo | undefined,
): Rest {
  const expected = expectedOf(parts.schema, '', 'v1', 'Binding');
  return {
    info,
    subresource,
    async create(context, namespace, name, body, options) {
      const binding = atOnce(parts.decoder.decodeBody(context, body, expected, options.fieldValidation)) as Binding;
      matchNamespace(binding, parts.pods.info, namespace);
      // Only the subresource takes the UID as a precondition.
      if (subresource === undefined) delete binding.metadata.uid;
      const target = { namespace, name: subresource === undefined ? (binding.metadata.name ?? '') : name };
      const endpoint = endpointOf(info, subresource?.name ?? '', { group: '', version: 'v1', kind: 'Binding' });
      await admit(parts.pods, context, { endpoint, ...target, object: binding, options }, () => {
        if ((binding.metadata.name ?? '') !== target.name)
          throw newBadRequest('name in URL does not match name in Binding object');
      });
      await bind(parts.pods, context, { ...target, options }, binding);
      return { status: 201, entry: done() };
    },
  };
}

/** The pod that an action is about. */
export interface Target {
  readonly namespace: string;
  readonly name: string;
}

/** An action that a client posts to a pod. */
interface Action extends Target {
  readonly endpoint: Endpoint;
  /** The decoded body. */
  readonly object: KubeObject;
  readonly options: WriteOptions;
}

/** Runs mutating admission, the caller's check of the body, and validating admission, in kube-apiserver's order. */
export async function admit(store: Store, context: RequestContext, action: Action, check: () => void): Promise<void> {
  const attributes = admissionAttributes(context, {
    operation: 'CREATE',
    ...action,
    oldObject: undefined,
    options: writeOptionsObject('CreateOptions', action.options),
    dryRun: action.options.dryRun,
  });
  await store.admission.admit(attributes, context.signal);
  check();
  await store.admission.validate(attributes, context.signal);
}

/**
 * Assigns the pod to the node of the binding. Rejects with a 500 for a target that is no node or has no name, with a 400
 * without the name of a pod, with a 404 if the pod does not exist, and with a 409 if it is assigned, is being deleted, has
 * scheduling gates or does not meet the preconditions.
 */
async function bind(
  store: Store,
  context: RequestContext,
  target: Target & { readonly options: WriteOptions },
  binding: Binding,
): Promise<void> {
  const { kind = '', name: node = '' } = binding.target ?? {};
  // kube-apiserver returns these errors as plain Go errors, so the client gets a 500.
  if (kind !== '' && kind !== 'Node')
    throw newErrorWithoutReason(unsupportedValue('target.kind', kind, ['Node', '<empty>']).toString());
  if (node === '') throw newErrorWithoutReason(required('target.name').toString());
  if (target.name === '') throw newBadRequest('Name parameter required.');
  const subject = { group: '', resource: 'pods/binding' };
  const { uid, resourceVersion } = binding.metadata;
  await changeEntry(
    store,
    context,
    {
      endpoint: endpointOf(store.info, 'binding', { group: '', version: 'v1', kind: 'Binding' }),
      ...target,
      optionsObject: writeOptionsObject('CreateOptions', target.options),
      skipAdmission: true,
    },
    {
      creates: false,
      ...(uid === undefined || uid === '' ? {} : { uid }),
      compute(current) {
        const pod: Pod = cloneJson(current ?? { metadata: {} });
        const found = pod.metadata.resourceVersion ?? '';
        if (resourceVersion !== undefined && resourceVersion !== '' && resourceVersion !== found)
          throw preconditionConflict(store, target, { field: 'ResourceVersion', wanted: resourceVersion, found });
        if (pod.metadata.deletionTimestamp !== undefined)
          throw newConflict(subject, target.name, `pod ${target.name} is being deleted, cannot be assigned to a host`);
        const assigned = pod.spec?.nodeName ?? '';
        if (assigned !== '')
          throw newConflict(
            subject,
            target.name,
            `pod ${target.name} is already assigned to node ${quoteText(assigned)}`,
          );
        if ((pod.spec?.schedulingGates ?? []).length > 0)
          throw newConflict(subject, target.name, `pod ${target.name} has non-empty .spec.schedulingGates`);
        assign(pod, node, binding, store.clock.now());
        return pod;
      },
    },
  );
}

function assign(pod: Pod, node: string, binding: Binding, nowMs: number): void {
  pod.spec = { ...pod.spec, nodeName: node };
  const { annotations, labels } = binding.metadata;
  if (annotations !== undefined) pod.metadata.annotations = { ...pod.metadata.annotations, ...annotations };
  if (labels !== undefined) pod.metadata.labels = { ...labels, ...pod.metadata.labels };
  const conditions = (pod.status?.conditions ?? []).filter(({ type }) => type !== 'PodScheduled');
  const scheduled = {
    type: 'PodScheduled',
    status: 'True',
    lastProbeTime: null as unknown as string,
    lastTransitionTime: formatTime(nowMs),
  };
  // The nomination ends with the binding, because only pending pods have one.
  const { nominatedNodeName: _nominated, ...status } = pod.status ?? {};
  pod.status = { ...status, conditions: [...conditions, scheduled] };
}
