/**
 * What is done to a pod rather than written: binding to a node, and eviction within disruption budgets. The answer of
 * both is a Status.
 */
import { quoteText } from '../../../../api/meta/quote.ts';
import type { V1Binding, V1Eviction, V1PodDisruptionBudget } from '@kubernetes/client-node';
import type { Pod } from '../../../../api/kinds/pod-types.ts';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { formatTime } from '../../../../api/machinery/clock.ts';
import { required, unsupportedValue } from '../../../../api/meta/field-error.ts';
import { cloneJson } from '../../../../api/meta/json-equality.ts';
import { everything, fromLabelSelector } from '../../../../api/meta/selector.ts';
import { everyField } from '../../../../api/meta/field-selector.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { isConflict, newBadRequest, newConflict, newStatusError } from '../../../../api/meta/status-error.ts';
import type { Schema, SubresourceInfo, ResourceInfo } from '../../../../api/schema/schema.ts';
import { builtInReader, type Decoder, type ExpectedKind } from '../../object-decoding.ts';
import { matchNamespace, wipeSystemFields } from '../../object-identity.ts';
import { writeOptionsObject } from '../../resource-rest.ts';
import type { Body, DeleteOptions, Entry, RequestContext, Rest, WriteOptions } from '../../../model/rest.ts';
import { deleteEntry } from '../../store-delete.ts';
import { currentEntry, listEntries } from '../../store-read.ts';
import { changeEntry } from '../../store-write.ts';
import { admissionAttributes, looseEntry, unexplained, type Endpoint, type Store } from '../../store.ts';

type Binding = Kind<Pick<V1Binding, 'target'>>;
type Eviction = Kind<Pick<V1Eviction, 'deleteOptions'>>;
type Budget = Kind<Pick<V1PodDisruptionBudget, 'spec' | 'status'>>;

export interface ActionParts {
  readonly pods: Store;
  readonly budgets: Store;
  readonly schema: Schema;
  readonly decoder: Decoder;
}

/** The answer to an action that succeeded. */
function done(): Entry {
  return looseEntry({ kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success', code: 201 });
}

function expectedOf(schema: Schema, group: string, version: string, kind: string): ExpectedKind {
  const struct = schema.kind(group, version, kind);
  if (struct === undefined) throw new Error(`the schema lacks ${kind}`);
  return { group, version, kind, struct, reader: builtInReader, applyDefaults: undefined };
}

function endpointOf(info: ResourceInfo, subresource: string, kind: Endpoint['kind']): Endpoint {
  return { info, subresource, kind, strategy: {} };
}

// --- binding

/** `pods/x/binding`, and with `own` the resource `bindings` itself. */
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
      const binding = parts.decoder.decodeBody(context, body, expected, options.fieldValidation) as Binding;
      matchNamespace(binding, parts.pods.info, namespace);
      const target = subresource === undefined ? (binding.metadata.name ?? '') : name;
      await admit(
        parts.pods,
        context,
        endpointOf(info, subresource?.name ?? '', { group: '', version: 'v1', kind: 'Binding' }),
        binding,
        { namespace, name: target },
        options,
        () => {
          if (binding.metadata.name !== target)
            throw newBadRequest('name in URL does not match name in Binding object');
        },
      );
      await bind(parts.pods, context, binding, { namespace, name: target }, options);
      return { status: 201, entry: done() };
    },
  };
}

interface Target {
  readonly namespace: string;
  readonly name: string;
}

/** Runs mutating admission, the caller's check of the body, and validating admission, in kube-apiserver's order. */
async function admit(
  store: Store,
  context: RequestContext,
  endpoint: Endpoint,
  object: KubeObject,
  target: Target,
  options: WriteOptions,
  check: () => void,
): Promise<void> {
  const attributes = admissionAttributes(context, {
    operation: 'CREATE',
    endpoint,
    ...target,
    object,
    oldObject: undefined,
    options: writeOptionsObject('CreateOptions', options),
    dryRun: options.dryRun,
  });
  await store.admission.admit(attributes, context.signal);
  check();
  await store.admission.validate(attributes, context.signal);
}

async function bind(
  store: Store,
  context: RequestContext,
  binding: Binding,
  target: Target,
  options: WriteOptions,
): Promise<void> {
  const { kind = '', name: node = '' } = binding.target ?? {};
  // kube-apiserver checks these as plain errors, which makes them a 500.
  if (kind !== '' && kind !== 'Node')
    throw unexplained(unsupportedValue('target.kind', kind, ['Node', '<empty>']).toString());
  if (node === '') throw unexplained(required('target.name').toString());
  const subject = { group: '', resource: 'pods/binding' };
  const { uid, resourceVersion } = binding.metadata;
  await changeEntry(
    store,
    context,
    {
      endpoint: endpointOf(store.info, 'binding', { group: '', version: 'v1', kind: 'Binding' }),
      ...target,
      options,
      optionsObject: writeOptionsObject('CreateOptions', options),
      skipAdmission: true,
    },
    {
      creates: false,
      ...(uid === undefined || uid === '' ? {} : { uid }),
      compute(current) {
        const pod: Pod = cloneJson(current ?? { metadata: {} });
        if (resourceVersion !== undefined && resourceVersion !== '') pod.metadata.resourceVersion = resourceVersion;
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
  pod.status = { ...pod.status, conditions: [...conditions, scheduled] };
}

// --- eviction

const DONE: ReadonlySet<string> = new Set(['Succeeded', 'Failed']);
const MAX_DISRUPTED = 2000;

export function createEvictionRest(parts: ActionParts, info: ResourceInfo, subresource: SubresourceInfo): Rest {
  const expected = { ...expectedOf(parts.schema, 'policy', 'v1', 'Eviction'), alsoVersions: ['v1beta1'] };
  const endpoint = endpointOf(info, 'eviction', { group: 'policy', version: 'v1', kind: 'Eviction' });
  return {
    info,
    subresource,
    async create(context, namespace, name, body: Body, options) {
      const eviction = parts.decoder.decodeBody(context, body, expected, options.fieldValidation) as Eviction;
      matchNamespace(eviction, info, namespace);
      wipeSystemFields(eviction);
      await admit(parts.pods, context, endpoint, eviction, { namespace, name }, options, () => {
        if (eviction.metadata.name !== name) throw newBadRequest('name in URL does not match name in Eviction object');
      });
      await evict(parts, context, { namespace, name }, deleteOptionsOf(eviction, options));
      return { status: 201, entry: done() };
    },
  };
}

function deleteOptionsOf(eviction: Eviction, options: WriteOptions): DeleteOptions {
  const given = eviction.deleteOptions ?? {};
  const { uid, resourceVersion } = given.preconditions ?? {};
  return {
    dryRun: options.dryRun || (given.dryRun ?? []).includes('All'),
    gracePeriodSeconds: given.gracePeriodSeconds,
    propagationPolicy: (given.propagationPolicy ?? '') as DeleteOptions['propagationPolicy'],
    orphanDependents: given.orphanDependents,
    preconditions: {
      ...(uid === undefined ? {} : { uid }),
      ...(resourceVersion === undefined ? {} : { resourceVersion }),
    },
  };
}

async function evict(
  parts: ActionParts,
  context: RequestContext,
  target: Target,
  options: DeleteOptions,
): Promise<void> {
  const { pods } = parts;
  const entry = currentEntry(pods, target.namespace, target.name);
  const pod: Pod = entry.object;
  const free =
    DONE.has(pod.status?.phase ?? '') ||
    pod.status?.phase === 'Pending' ||
    pod.metadata.deletionTimestamp !== undefined;
  const budget = free ? undefined : await budgetOf(parts, context, pod);
  const guarded = budget !== undefined && !unhealthyMayGo(budget, pod);
  if (guarded) await takeDisruption(parts, context, budget, pod, options.dryRun);
  const endpoint = endpointOf(pods.info, '', { group: '', version: 'v1', kind: 'Pod' });
  const marked = DONE.has(pod.status?.phase ?? '') ? '' : await markDisrupted(pods, context, target, options);
  await deleteEntry(
    pods,
    context,
    {
      endpoint,
      ...target,
      optionsObject: { kind: 'DeleteOptions', apiVersion: 'meta.k8s.io/v1' },
      isAdmitted: true,
    },
    marked === '' ? options : { ...options, preconditions: { ...options.preconditions, resourceVersion: marked } },
  );
}

/**
 * Says on the pod why it ends, before it is deleted; a pod that changed since the caller saw it is left alone. Resolves to
 * the version that a precondition on the version now means, `''` without one.
 */
async function markDisrupted(
  store: Store,
  context: RequestContext,
  target: Target,
  { dryRun, preconditions = {} }: DeleteOptions,
): Promise<string> {
  const { uid, resourceVersion } = preconditions;
  let changed = false;
  const { entry } = await changeEntry(
    store,
    context,
    {
      endpoint: endpointOf(store.info, 'status', { group: '', version: 'v1', kind: 'Pod' }),
      ...target,
      options: { dryRun, fieldValidation: 'Ignore' },
      optionsObject: {},
      skipAdmission: true,
    },
    {
      creates: false,
      compute(current) {
        const pod: Pod = cloneJson(current ?? { metadata: {} });
        changed =
          (uid !== undefined && uid !== pod.metadata.uid) ||
          (resourceVersion !== undefined && resourceVersion !== pod.metadata.resourceVersion);
        if (!changed) setDisrupted(pod, store.clock.now());
        return pod;
      },
    },
  );
  return changed || resourceVersion === undefined || dryRun ? '' : (entry.object.metadata.resourceVersion ?? '');
}

function setDisrupted(pod: Pod, nowMs: number): void {
  const conditions = pod.status?.conditions ?? [];
  const before = conditions.find(({ type }) => type === 'DisruptionTarget');
  if (before?.status === 'True' && before.reason === 'EvictionByEvictionAPI') return;
  const condition = {
    type: 'DisruptionTarget',
    status: 'True',
    lastProbeTime: null as unknown as string,
    lastTransitionTime: formatTime(nowMs),
    reason: 'EvictionByEvictionAPI',
    message: 'Eviction API: evicting',
  };
  pod.status = { ...pod.status, conditions: [...conditions.filter((one) => one !== before), condition] };
}

async function budgetOf(parts: ActionParts, context: RequestContext, pod: Pod): Promise<Budget | undefined> {
  const { entries } = await listEntries(
    parts.budgets,
    context,
    { namespace: pod.metadata.namespace ?? '' },
    {
      labelSelector: everything,
      fieldSelector: everyField,
      resourceVersion: '',
      resourceVersionMatch: '',
      limit: 0,
      continue: '',
    },
  );
  const labels = pod.metadata.labels ?? {};
  const budgets = entries
    .map(({ object }) => object as Budget)
    .filter(({ spec }) => spec?.selector !== undefined && fromLabelSelector(spec.selector as never).matches(labels));
  if (budgets.length > 1) {
    throw unexplained(
      'This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.',
    );
  }
  return budgets[0];
}

const isReady = (pod: Pod): boolean =>
  (pod.status?.conditions ?? []).some(({ type, status }) => type === 'Ready' && status === 'True');

/** A pod that is not ready takes nothing from the application when its budget is met anyway. */
function unhealthyMayGo(budget: Budget, pod: Pod): boolean {
  if (isReady(pod)) return false;
  if (budget.spec?.unhealthyPodEvictionPolicy === 'AlwaysAllow') return true;
  const { currentHealthy = 0, desiredHealthy = 0 } = budget.status ?? {};
  return currentHealthy >= desiredHealthy && desiredHealthy > 0;
}

async function takeDisruption(
  parts: ActionParts,
  context: RequestContext,
  budget: Budget,
  pod: Pod,
  dryRun: boolean,
): Promise<void> {
  const { budgets } = parts;
  const { name = '', namespace = '' } = budget.metadata;
  const options: WriteOptions = { dryRun, fieldValidation: 'Ignore' };
  try {
    await changeEntry(
      budgets,
      context,
      {
        endpoint: endpointOf(budgets.info, 'status', { group: 'policy', version: 'v1', kind: 'PodDisruptionBudget' }),
        namespace,
        name,
        options,
        optionsObject: {},
        skipAdmission: true,
      },
      {
        creates: false,
        compute(current) {
          const object = cloneJson(current ?? { metadata: {} }) as Budget;
          countDisruption(object, pod, budgets.clock.now());
          return object;
        },
      },
    );
  } catch (error) {
    if (!isConflict(error)) throw error;
    throw newStatusError(429, 'TooManyRequests', 'too many concurrent updates of the disruption budget', {
      details: { retryAfterSeconds: 10 },
    });
  }
}

function countDisruption(budget: Budget, pod: Pod, nowMs: number): void {
  const status = (budget.status ??= {});
  const { name = '' } = budget.metadata;
  const refuse = (message: string, retryAfterSeconds = 0): Error =>
    newStatusError(429, 'TooManyRequests', "Cannot evict pod as it would violate the pod's disruption budget.", {
      details: {
        causes: [{ reason: 'DisruptionBudget', message }],
        ...(retryAfterSeconds === 0 ? {} : { retryAfterSeconds }),
      },
    });
  if ((status.observedGeneration ?? 0) < (budget.metadata.generation ?? 0)) {
    throw refuse(`The disruption budget ${name} is still being processed by the server.`, 10);
  }
  if ((status.disruptionsAllowed ?? 0) < 0)
    throw newStatusError(403, 'Forbidden', 'pdb disruptions allowed is negative');
  if (Object.keys(status.disruptedPods ?? {}).length > MAX_DISRUPTED)
    throw newStatusError(
      403,
      'Forbidden',
      'DisruptedPods map too big - too many evictions not confirmed by PDB controller',
    );
  if ((status.disruptionsAllowed ?? 0) === 0) {
    throw refuse(
      `The disruption budget ${name} needs ${status.desiredHealthy ?? 0} healthy pods and has ${status.currentHealthy ?? 0} currently`,
    );
  }
  status.disruptionsAllowed = (status.disruptionsAllowed ?? 0) - 1;
  status.disruptedPods = { ...status.disruptedPods, [pod.metadata.name ?? '']: formatTime(nowMs) as never };
}
