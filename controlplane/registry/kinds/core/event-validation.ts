/**
 * Validates events. Events of the core group are validated loosely, because old clients send incomplete ones. Events of
 * `events.k8s.io` must be complete, and their fields are immutable except for the series.
 */
import { invalid, required, type FieldError } from '../../../../api/meta/field-error.ts';
import { semanticEqual } from '../../../../api/meta/json-equality.ts';
import { dnsSubdomainErrors, nameIsSubdomain, qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { validateMetadata } from '../../../../api/meta/validation.ts';
import type { StrategyContext } from '../../strategy.ts';
import type { Event } from './event-types.ts';
import { immutable } from '../field-rules.ts';
import { SYSTEM_NAMESPACE } from '../../../../api/meta/system-namespaces.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

const MAX_WORD_BYTES = 128;
const MAX_NOTE_BYTES = 1024;
const FOREIGN = 'does not match event.namespace';

const isStrict = ({ info }: StrategyContext): boolean => info.group !== '';
const isUnset = (time: string | null | undefined): boolean => time === undefined || time === null || time === '';

/** Validates a text that `events.k8s.io` requires and limits in length. */
function wordErrors(field: string, value: string): FieldError[] {
  if (value === '') return [required(field)];
  return Buffer.byteLength(value) > MAX_WORD_BYTES ? [tooMuch(field, MAX_WORD_BYTES)] : [];
}

const tooMuch = (field: string, max: number): FieldError => invalid(field, '', `can have at most ${max} characters`);

/**
 * Validates the fields of events of both groups. `strict` means that the request is one of `events.k8s.io`, which has another
 * name for one field.
 */
function commonErrors(event: Event, strict: boolean): FieldError[] {
  const { namespace = '' } = event.metadata;
  const about = event.involvedObject?.namespace ?? '';
  const errors: FieldError[] = [];
  const foreign = (): void => {
    errors.push(invalid('involvedObject.namespace', about, FOREIGN));
  };
  if (isUnset(event.eventTime)) {
    // Events of cluster-scoped objects are in the namespace `default`.
    if (about === '' ? namespace !== '' && namespace !== 'default' : about !== namespace) foreign();
  } else {
    if (about === '' && namespace !== 'default' && namespace !== SYSTEM_NAMESPACE) foreign();
    const { reportingComponent: reporter = '', reportingInstance = '', action = '', reason = '', message = '' } = event;
    const reporterField = strict ? 'reportingController' : 'reportingComponent';
    if (reporter === '') errors.push(required(reporterField));
    errors.push(
      ...invalidFor(reporterField, reporter, qualifiedNameErrors(reporter)),
      ...wordErrors('reportingInstance', reportingInstance),
      ...wordErrors('action', action),
      ...wordErrors('reason', reason),
    );
    if (Buffer.byteLength(message) > MAX_NOTE_BYTES) errors.push(tooMuch('message', MAX_NOTE_BYTES));
  }
  return [...errors, ...invalidFor('namespace', namespace, dnsSubdomainErrors(namespace))];
}

function seriesErrors({ series }: Event): FieldError[] {
  if (series === undefined || series === null) return [];
  const errors: FieldError[] = [];
  if ((series.count ?? 0) < 2) errors.push(invalid('series.count', '', 'should be at least 2'));
  if (isUnset(series.lastObservedTime)) errors.push(required('series.lastObservedTime'));
  return errors;
}

/** Validates an event. Requests to `events.k8s.io` are validated strictly, and those to the core group loosely. */
export function eventErrors(event: Event, context: StrategyContext): FieldError[] {
  const errors = commonErrors(event, isStrict(context));
  if (!isStrict(context)) return errors;
  const { type = '', source = {} } = event;
  const rules = { namespaced: true, nameRule: nameIsSubdomain, builtIn: true };
  errors.push(...validateMetadata(event.metadata, rules), ...seriesErrors(event));
  if (isUnset(event.eventTime)) errors.push(required('eventTime'));
  if (type !== 'Normal' && type !== 'Warning') errors.push(invalid('type', '', `has invalid value: ${type}`));
  const set = {
    firstTimestamp: !isUnset(event.firstTimestamp),
    lastTimestamp: !isUnset(event.lastTimestamp),
    count: (event.count ?? 0) !== 0,
    source: (source.component ?? '') !== '' || (source.host ?? '') !== '',
  };
  for (const [field, isSet] of Object.entries(set)) if (isSet) errors.push(invalid(field, '', 'needs to be unset'));
  return errors;
}

/** All fields except the series, in the order of validation. kube-apiserver validates `reason` twice. */
const FIXED = [
  'involvedObject',
  'reason',
  'message',
  'source',
  'firstTimestamp',
  'lastTimestamp',
  'count',
  'reason',
  'type',
  'eventTime',
  'action',
  'related',
  'reportingComponent',
  'reportingInstance',
] as const;

/** The types of those fields that are structs. */
const STRUCT_TYPES: ReadonlyMap<string, string> = new Map([
  ['involvedObject', 'io.k8s.api.core.v1.ObjectReference'],
  ['related', 'io.k8s.api.core.v1.ObjectReference'],
  ['source', 'io.k8s.api.core.v1.EventSource'],
]);

/** Returns the errors of a changed event. Only requests to `events.k8s.io` are limited in what they may change. */
export function eventUpdateErrors(event: Event, old: Event, context: StrategyContext): FieldError[] {
  const errors = commonErrors(event, isStrict(context));
  if (!isStrict(context)) return errors;
  if (!semanticEqual(event.series, old.series)) errors.push(...seriesErrors(event));
  for (const field of FIXED) {
    const path = field === 'reportingComponent' ? 'reportingController' : field;
    // An absent value equals an empty one.
    const typeName = STRUCT_TYPES.get(field);
    if (typeName === undefined) {
      const absent = field === 'eventTime' ? null : '';
      errors.push(...immutable(path, event[field] ?? absent, old[field] ?? absent));
    } else errors.push(...immutable(path, event[field], old[field], typeName));
  }
  return errors;
}
