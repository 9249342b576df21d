/**
 * Parses, converts and validates the options of a request in its query or, for deletions, in its body. The errors are those of
 * kube-apiserver (400 if a value cannot be parsed, 422 if it is not allowed).
 */
import { INT64_MAX, INT64_MIN } from '../../api/meta/integers.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { parseSelector } from '../../api/meta/selector-parser.ts';
import { everything } from '../../api/meta/selector.ts';
import { everyField, parseFieldSelector } from '../../api/meta/field-selector.ts';
import {
  type FieldError,
  forbidden,
  invalid,
  notSupported,
  required,
  tooLong,
  unsupportedValue,
} from '../../api/meta/field-error.ts';
import { newBadRequest, newInvalid } from '../../api/meta/status-error.ts';
import { deleteOptionsErrors, dryRunErrors } from '../model/delete-options.ts';
import type { DeleteOptions, FieldValidation, ListOptions, WatchOptions, WriteOptions } from '../model/rest.ts';
import { jsonType } from './body.ts';
import { queryBoolean } from './request-info.ts';

const MAX_FIELD_MANAGER_BYTES = 128;
/** The number of digits of the largest integer of 64 bits. */
const MAX_INTEGER_DIGITS = 19;

/** The options of a list or a watch, which share one path. */
export interface ListRequest extends ListOptions {
  readonly watch: boolean;
  readonly allowWatchBookmarks: boolean;
  readonly sendInitialEvents: boolean | undefined;
  readonly timeoutSeconds: number | undefined;
}

/** Parses the options of a list or a watch from the query. Throws a 400 for a value that cannot be parsed. */
export function parseListOptions(query: URLSearchParams): ListRequest {
  const timeout = query.get('timeoutSeconds');
  const initial = query.get('sendInitialEvents');
  const labels = query.get('labelSelector');
  const fields = query.get('fieldSelector');
  const limit = query.get('limit');
  // kube-apiserver converts numbers before it parses selectors.
  const numbers = {
    timeoutSeconds: timeout === null ? undefined : parseInteger(timeout),
    limit: limit === null ? 0 : Math.max(0, parseInteger(limit)),
  };
  const options: ListRequest = {
    labelSelector: labels === null || labels === '' ? everything : parseSelector(labels),
    fieldSelector: fields === null || fields === '' ? everyField : parseFieldSelector(fields),
    resourceVersion: query.get('resourceVersion') ?? '',
    resourceVersionMatch: (query.get('resourceVersionMatch') ?? '') as ListOptions['resourceVersionMatch'],
    ...numbers,
    continue: query.get('continue') ?? '',
    watch: flag(query, 'watch'),
    allowWatchBookmarks: flag(query, 'allowWatchBookmarks'),
    sendInitialEvents: initial === null ? undefined : queryBoolean(initial),
  };
  return options;
}

/** Throws a 422 with all options that are invalid, also in combination with others. */
export function validateListOptions(options: ListRequest): void {
  const errors = options.watch ? watchErrors(options) : listErrors(options);
  if (errors.length > 0) throw newInvalid({ group: 'meta.k8s.io', resource: 'ListOptions' }, '', errors);
}

const MATCH = 'resourceVersionMatch';
const WITH_CONTINUE = 'resourceVersionMatch is forbidden when continue is provided';

function listErrors(options: ListRequest): FieldError[] {
  const errors: FieldError[] = [];
  const match: string = options.resourceVersionMatch;
  if (match !== '') {
    if (options.resourceVersion === '') {
      errors.push(forbidden(MATCH, 'resourceVersionMatch is forbidden unless resourceVersion is provided'));
    }
    if (options.continue !== '') errors.push(forbidden(MATCH, WITH_CONTINUE));
    if (match !== 'Exact' && match !== 'NotOlderThan') {
      errors.push(unsupportedValue(MATCH, match, ['Exact', 'NotOlderThan', '']));
    }
    if (match === 'Exact' && options.resourceVersion === '0') {
      errors.push(forbidden(MATCH, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'));
    }
  }
  if (options.sendInitialEvents !== undefined) {
    errors.push(forbidden('sendInitialEvents', 'sendInitialEvents is forbidden for list'));
  }
  return errors;
}

function watchErrors(options: ListRequest): FieldError[] {
  const errors: FieldError[] = [];
  const match: string = options.resourceVersionMatch;
  if (options.sendInitialEvents !== undefined && match !== 'NotOlderThan') {
    errors.push(forbidden(MATCH, 'sendInitialEvents requires setting resourceVersionMatch to NotOlderThan'));
  }
  if (match !== '') {
    if (options.sendInitialEvents === undefined) {
      errors.push(forbidden(MATCH, 'resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided'));
    }
    if (match !== 'NotOlderThan') errors.push(unsupportedValue(MATCH, match, ['NotOlderThan']));
  }
  // A watch that begins with the newest state, or with any, has a match by default.
  const matches = match !== '' || (options.sendInitialEvents === undefined && beginsAnywhere(options));
  if (options.continue !== '' && matches) errors.push(forbidden(MATCH, WITH_CONTINUE));
  return errors;
}

const beginsAnywhere = ({ resourceVersion }: ListRequest): boolean => resourceVersion === '' || resourceVersion === '0';

/**
 * Returns the options of a watch. Without `sendInitialEvents`, a watch that begins with the newest state, or with any, begins
 * with all objects, as in kube-apiserver.
 */
export function watchOptionsOf(options: ListRequest, name: string): WatchOptions {
  return {
    labelSelector: options.labelSelector,
    fieldSelector: options.fieldSelector,
    resourceVersion: options.resourceVersion,
    resourceVersionMatch: options.resourceVersionMatch,
    allowWatchBookmarks: options.allowWatchBookmarks,
    sendInitialEvents: options.sendInitialEvents ?? (beginsAnywhere(options) ? true : undefined),
    name,
  };
}

/** Parses a whole number of 64 bits as kube-apiserver does, with its errors. Numbers beyond 2^53 are rounded. */
function parseInteger(text: string): number {
  if (!/^[+-]?\d+$/.test(text)) throw newBadRequest(`strconv.ParseInt: parsing ${quoteText(text)}: invalid syntax`);
  const digits = text.replace(/^[+-]?0*/, '');
  const value = digits.length > MAX_INTEGER_DIGITS ? undefined : BigInt(text.replace('+', ''));
  if (value === undefined || value < INT64_MIN || value > INT64_MAX)
    throw newBadRequest(`strconv.ParseInt: parsing ${quoteText(text)}: value out of range`);
  return Number(value);
}

function flag(query: URLSearchParams, name: string): boolean {
  const value = query.get(name);
  return value !== null && queryBoolean(value);
}

interface WriteRequest extends WriteOptions {
  readonly fieldManager: string;
  /** The option of apply. It is `undefined` if it is not set. */
  readonly force: boolean | undefined;
}

type WriteOptionsKind = 'CreateOptions' | 'UpdateOptions' | 'PatchOptions';

/**
 * Reads the options of a write from the query. Throws a 422 if they are invalid. `apply` means that the patch is an apply
 * patch, which needs a field manager and may have `force`.
 */
export function parseWriteOptions(query: URLSearchParams, kind: WriteOptionsKind, apply = false): WriteRequest {
  const fieldManager = query.get('fieldManager') ?? '';
  const validation = query.get('fieldValidation') ?? '';
  const dryRun = query.getAll('dryRun');
  const force = kind === 'PatchOptions' ? query.get('force') : null;
  const errors: FieldError[] = [];
  if (apply && fieldManager === '') errors.push(required('fieldManager', 'is required for apply patch'));
  if (kind === 'PatchOptions' && !apply && force !== null) {
    errors.push(forbidden('force', 'may not be specified for non-apply patch'));
  }
  errors.push(...fieldManagerErrors(fieldManager), ...dryRunErrors(dryRun));
  if (!['', 'Ignore', 'Strict', 'Warn'].includes(validation)) {
    errors.push(notSupported('fieldValidation', validation, ['', 'Ignore', 'Strict', 'Warn']));
  }
  if (errors.length > 0) throw newInvalid({ group: 'meta.k8s.io', resource: kind }, '', errors);
  return {
    dryRun: dryRun.length > 0,
    fieldValidation: validation === '' ? 'Warn' : (validation as FieldValidation),
    given: {
      ...(fieldManager === '' ? {} : { fieldManager }),
      ...(validation === '' ? {} : { fieldValidation: validation }),
    },
    fieldManager,
    force: force === null ? undefined : queryBoolean(force),
  };
}

/** Returns a function that parses the options at its first call. */
export function writeOptionsOf(query: URLSearchParams, kind: WriteOptionsKind): () => WriteRequest {
  let parsed: WriteRequest | undefined;
  return () => (parsed ??= parseWriteOptions(query, kind));
}

function fieldManagerErrors(fieldManager: string): FieldError[] {
  const errors: FieldError[] = [];
  if (Buffer.byteLength(fieldManager) > MAX_FIELD_MANAGER_BYTES) {
    errors.push(tooLong('fieldManager', MAX_FIELD_MANAGER_BYTES));
  }
  let position = 0;
  for (const char of fieldManager) {
    if (!isPrintable(char)) {
      const code = (char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
      errors.push(invalid('fieldManager', fieldManager, `invalid character U+${code} (at position ${position})`));
    }
    position += Buffer.byteLength(char);
  }
  return errors;
}

/** Matches letters, marks, numbers, punctuation, symbols and the ASCII space. */
function isPrintable(char: string): boolean {
  return char === ' ' || /^[\p{L}\p{M}\p{N}\p{P}\p{S}]$/u.test(char);
}

/**
 * Parses DeleteOptions from the decoded body, or from the query if there is no body. Throws a 400 for a value that cannot be
 * parsed, and a 422 for one that is not allowed.
 */
export function parseDeleteOptions(query: URLSearchParams, body: Record<string, unknown> | undefined): DeleteOptions {
  const raw = body === undefined ? fromQuery(query) : fromBody(body);
  const policy = raw.propagationPolicy;
  const errors = deleteOptionsErrors(raw);
  if (errors.length > 0) throw newInvalid({ group: 'meta.k8s.io', resource: 'DeleteOptions' }, '', errors);
  return {
    dryRun: raw.dryRun.length > 0,
    gracePeriodSeconds: raw.gracePeriodSeconds,
    propagationPolicy: (policy ?? '') as DeleteOptions['propagationPolicy'],
    orphanDependents: raw.orphanDependents,
    preconditions: raw.preconditions,
    ...(raw.ignoreStoreReadError ? { ignoreStoreReadErrorWithClusterBreakingPotential: true } : {}),
  };
}

interface RawDeleteOptions {
  readonly dryRun: readonly string[];
  readonly gracePeriodSeconds: number | undefined;
  readonly propagationPolicy: string | undefined;
  readonly orphanDependents: boolean | undefined;
  readonly preconditions: DeleteOptions['preconditions'];
  readonly ignoreStoreReadError: boolean;
}

function fromQuery(query: URLSearchParams): RawDeleteOptions {
  const grace = query.get('gracePeriodSeconds');
  const orphan = query.get('orphanDependents');
  const uid = query.get('uid') ?? '';
  const resourceVersion = query.get('resourceVersion') ?? '';
  return {
    dryRun: query.getAll('dryRun'),
    gracePeriodSeconds: grace === null ? undefined : parseInteger(grace),
    propagationPolicy: query.get('propagationPolicy') ?? undefined,
    orphanDependents: orphan === null ? undefined : queryBoolean(orphan),
    preconditions:
      uid === '' && resourceVersion === ''
        ? undefined
        : { ...(uid === '' ? {} : { uid }), ...(resourceVersion === '' ? {} : { resourceVersion }) },
    ignoreStoreReadError: flag(query, 'ignoreStoreReadErrorWithClusterBreakingPotential'),
  };
}

function fromBody(body: Record<string, unknown>): RawDeleteOptions {
  const preconditions = field(body, 'preconditions', 'object') as Record<string, unknown> | undefined;
  const condition = (name: string): string | undefined =>
    preconditions === undefined
      ? undefined
      : (field(preconditions, name, 'string', 'Preconditions.preconditions') as string | undefined);
  const uid = condition('uid');
  const version = condition('resourceVersion');
  return {
    dryRun: stringList(body['dryRun']),
    gracePeriodSeconds: field(body, 'gracePeriodSeconds', 'number') as number | undefined,
    propagationPolicy: field(body, 'propagationPolicy', 'string') as string | undefined,
    orphanDependents: field(body, 'orphanDependents', 'boolean') as boolean | undefined,
    preconditions:
      preconditions === undefined
        ? undefined
        : { ...(uid === undefined ? {} : { uid }), ...(version === undefined ? {} : { resourceVersion: version }) },
    ignoreStoreReadError: field(body, 'ignoreStoreReadErrorWithClusterBreakingPotential', 'boolean') === true,
  };
}

const GO_TYPES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    number: 'int64',
    boolean: 'bool',
    object: 'v1.Preconditions',
    propagationPolicy: 'v1.DeletionPropagation',
    uid: 'types.UID',
  }),
);

function field(
  object: Record<string, unknown>,
  name: string,
  type: 'string' | 'number' | 'boolean' | 'object',
  within = 'DeleteOptions',
): unknown {
  const value = object[name];
  if (value === undefined || value === null) return undefined;
  const isOfType = type === 'number' ? isInt64(value) : typeof value === type && !Array.isArray(value);
  if (isOfType) return value;
  const isDecimal = type === 'number' && typeof value === 'number';
  const found = isDecimal ? `number ${value}` : jsonType(value);
  throw newBadRequest(
    `json: cannot unmarshal ${found} into Go struct field ${within}.${name} of type ${GO_TYPES.get(name) ?? GO_TYPES.get(type) ?? type}`,
  );
}

const isInt64 = (value: unknown): boolean => Number.isInteger(value) && Math.abs(Number(value)) <= Number(INT64_MAX);

function stringList(value: unknown): readonly string[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return value;
  const [found, type] = Array.isArray(value)
    ? [jsonType(value.find((item) => typeof item !== 'string')), 'string']
    : [jsonType(value), '[]string'];
  throw newBadRequest(`json: cannot unmarshal ${found} into Go struct field DeleteOptions.dryRun of type ${type}`);
}
