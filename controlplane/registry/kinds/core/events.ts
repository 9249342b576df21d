/** Defines the strategy of events of both groups. They are stored as core events and expire after `--event-ttl`. */
import { nameIsPathSegment } from '../../../../api/meta/names.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { eventColumns } from './event-columns.ts';
import type { KindOptions } from '../../kind-options.ts';
import { eventErrors, eventUpdateErrors } from './event-validation.ts';
import { kindRow, type Conversion, type KindRow, type Strategy } from '../../strategy.ts';
import type { Reference, Event } from './event-types.ts';

const reference =
  (name: keyof Reference) =>
  (event: Event): string =>
    event.involvedObject?.[name] ?? '';

/** The fields with different names: the stored name, and the name in `events.k8s.io`. */
const RENAMED = [
  ['involvedObject', 'regarding'],
  ['message', 'note'],
  ['reportingComponent', 'reportingController'],
  ['source', 'deprecatedSource'],
  ['firstTimestamp', 'deprecatedFirstTimestamp'],
  ['lastTimestamp', 'deprecatedLastTimestamp'],
  ['count', 'deprecatedCount'],
] as const;

/** Maps the field selectors of `events.k8s.io` to the stored fields. */
const FIELD_NAMES: Readonly<Record<string, string>> = {
  reason: 'reason',
  type: 'type',
  reportingController: 'reportingComponent',
  ...Object.fromEntries(
    ['kind', 'namespace', 'name', 'uid', 'apiVersion', 'resourceVersion', 'fieldPath'].map((name) => [
      `regarding.${name}`,
      `involvedObject.${name}`,
    ]),
  ),
};

function renamed(object: KubeObject, apiVersion: string, names: readonly (readonly [string, string])[]): KubeObject {
  object.apiVersion = apiVersion;
  for (const [from, to] of names) {
    const value = object[from];
    delete object[from];
    if (value !== undefined) object[to] = value;
  }
  return object;
}

const conversion: Conversion = {
  fieldNames: FIELD_NAMES,
  toStored: (object) =>
    renamed(
      object,
      'v1',
      RENAMED.map(([stored, served]) => [served, stored] as const),
    ),
  fromStored(object) {
    const served = renamed(object, 'events.k8s.io/v1', RENAMED);
    // kube-apiserver includes these fields in core events even if they are empty.
    for (const field of ['reportingController', 'reportingInstance']) if (served[field] === '') delete served[field];
    return served;
  },
};

/** Returns the row of events, which `events.k8s.io` serves too. They expire after `eventTtlMs`. */
export function eventKinds(options: KindOptions): KindRow[] {
  const events: Strategy<Event> = {
    metadataChecks: ['update'],
    uncheckedGroup: '',
    nameRule: nameIsPathSegment,
    allowCreateOnUpdate: true,
    validateCreate: eventErrors,
    validateUpdate: eventUpdateErrors,
    defaultPropagation: 'Unsupported',
    timeToLiveMs: () => options.eventTtlMs,
    selectableFields: {
      'involvedObject.kind': reference('kind'),
      'involvedObject.namespace': reference('namespace'),
      'involvedObject.name': reference('name'),
      'involvedObject.uid': reference('uid'),
      'involvedObject.apiVersion': reference('apiVersion'),
      'involvedObject.resourceVersion': reference('resourceVersion'),
      'involvedObject.fieldPath': reference('fieldPath'),
      reason: (event) => event.reason ?? '',
      reportingComponent: (event) => event.reportingComponent ?? '',
      source: (event) =>
        (event.source?.component ?? '') === '' ? (event.reportingComponent ?? '') : (event.source?.component ?? ''),
      type: (event) => event.type ?? '',
    },
    indexedFields: ['involvedObject.uid', 'involvedObject.name'],
    columns: eventColumns,
  };
  return [kindRow('', 'events', events, { 'events.k8s.io/v1': conversion })];
}
