/**
 * Defines the error type of the API, which carries the `Status` object that the client receives.
 *
 * Named constructors build it with kube-apiserver's messages, and predicates recognize it by its `reason`.
 */
import { quote, type FieldError } from './field-error.ts';
import { groupResourceName } from './group-resource.ts';

interface StatusCause {
  reason?: string;
  message?: string;
  field?: string;
}

/** What the failure is about. */
export interface StatusDetails {
  name?: string;
  group?: string;
  kind?: string;
  uid?: string;
  causes?: StatusCause[];
  retryAfterSeconds?: number;
}

/** The body of a failed response, and of a deletion that returns no object. */
export interface Status {
  kind: 'Status';
  apiVersion: 'v1';
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  status: 'Success' | 'Failure';
  message?: string;
  reason?: string;
  details?: StatusDetails;
  code: number;
}

/** A failure that a client may see. */
export class StatusError extends Error {
  readonly status: Status;

  constructor(status: Status, options?: ErrorOptions) {
    super(status.message ?? status.reason ?? `status ${status.code}`, options);
    this.name = 'StatusError';
    this.status = status;
  }

  get code(): number {
    return this.status.code;
  }

  get reason(): string {
    return this.status.reason ?? '';
  }
}

/** Builds an error whose `Status` has the status Failure. An empty reason is omitted. */
export function newStatusError(
  code: number,
  reason: string,
  message: string,
  options: { readonly details?: StatusDetails; readonly cause?: unknown; readonly metadata?: Status['metadata'] } = {},
): StatusError {
  const status: Status = {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: options.metadata ?? {},
    status: 'Failure',
    message,
    ...(reason === '' ? {} : { reason }),
    ...(options.details === undefined ? {} : { details: options.details }),
    code,
  };
  return new StatusError(status, options.cause === undefined ? undefined : { cause: options.cause });
}

/** The subject of an error: a resource (`pods`), or for `newInvalid` a kind (`Pod`), with its group. */
export interface Subject {
  readonly group: string;
  readonly resource: string;
}

function details(subject: Subject, name: string): StatusDetails {
  return {
    ...(name === '' ? {} : { name }),
    ...(subject.group === '' ? {} : { group: subject.group }),
    ...(subject.resource === '' ? {} : { kind: subject.resource }),
  };
}

/** Returns a 404: there is no such object. */
export function newNotFound(subject: Subject, name: string): StatusError {
  return newStatusError(404, 'NotFound', `${groupResourceName(subject)} ${quote(name)} not found`, {
    details: details(subject, name),
  });
}

/** Returns a 409: an object with this name exists. */
export function newAlreadyExists(subject: Subject, name: string): StatusError {
  return newStatusError(409, 'AlreadyExists', `${groupResourceName(subject)} ${quote(name)} already exists`, {
    details: details(subject, name),
  });
}

/** Returns a 409: the object has changed meanwhile, or the change conflicts with another. */
export function newConflict(subject: Subject, name: string, why: string): StatusError {
  return newStatusError(
    409,
    'Conflict',
    `Operation cannot be fulfilled on ${groupResourceName(subject)} ${quote(name)}: ${why}`,
    {
      details: details(subject, name),
    },
  );
}

/** Returns a 403: the user may not do that, or admission refuses it. */
export function newForbidden(subject: Subject, name: string, why: string): StatusError {
  let message: string;
  if (groupResourceName(subject) === '') message = `forbidden: ${why}`;
  else if (name === '') message = `${groupResourceName(subject)} is forbidden: ${why}`;
  else message = `${groupResourceName(subject)} ${quote(name)} is forbidden: ${why}`;
  return newStatusError(403, 'Forbidden', message, { details: details(subject, name) });
}

/** Returns a 401: the credentials are not valid. */
export function newUnauthorized(): StatusError {
  return newStatusError(401, 'Unauthorized', 'Unauthorized');
}

/** Returns a 400: the request cannot be understood. */
export function newBadRequest(message: string): StatusError {
  return newStatusError(400, 'BadRequest', message);
}

/** Returns a 410 with reason `Expired`: the requested history is no longer available. */
export function newExpired(message: string): StatusError {
  return newStatusError(410, 'Expired', message);
}

/** Returns a 405: the resource does not have this verb. */
export function newMethodNotSupported(subject: Subject, action: string): StatusError {
  return newStatusError(
    405,
    'MethodNotAllowed',
    `${action} is not supported on resources of kind ${quote(groupResourceName(subject))}`,
    {
      details: details(subject, ''),
    },
  );
}

/** Returns a 500: a failure of the server itself. The cause is for the log. */
export function newInternalError(message: string, cause?: unknown): StatusError {
  return newStatusError(500, 'InternalError', `Internal error occurred: ${message}`, {
    details: { causes: [{ message }] },
    ...(cause === undefined ? {} : { cause }),
  });
}

/** Returns a 500 without a reason, as kube-apiserver answers for errors of Go that are no Status. */
export function newErrorWithoutReason(message: string): StatusError {
  return newStatusError(500, '', message);
}

/** Returns a 503: the server cannot answer now. */
export function newServiceUnavailable(message: string): StatusError {
  return newStatusError(503, 'ServiceUnavailable', message);
}

/** Returns a 504: the operation did not finish in time. */
export function newTimeout(message: string, retryAfterSeconds = 0): StatusError {
  return newStatusError(504, 'Timeout', `Timeout: ${message}`, {
    details: retryAfterSeconds === 0 ? {} : { retryAfterSeconds },
  });
}

/** Returns a 413: the body is larger than the server accepts. */
export function newRequestEntityTooLarge(message: string): StatusError {
  return newStatusError(413, 'RequestEntityTooLarge', message);
}

/** Returns a 415: the server does not read this content type. */
export function newUnsupportedMediaType(message: string): StatusError {
  return newStatusError(415, 'UnsupportedMediaType', message);
}

/** Returns a 406: the server does not write what the client accepts. */
export function newNotAcceptable(message: string): StatusError {
  return newStatusError(406, 'NotAcceptable', message);
}

/**
 * The size of the error texts in one response above which further errors are only counted, because each may quote a large
 * value, and there may be very many.
 */
const MAX_INVALID_CHARS = 256 * 1024;

/** Cuts the text to `MAX_INVALID_CHARS`, because a single error may quote a whole object. */
const shortened = (text: string): string =>
  text.length <= MAX_INVALID_CHARS
    ? text
    : `${text.slice(0, MAX_INVALID_CHARS)}... (${text.length - MAX_INVALID_CHARS} more characters)`;

/** Returns a 422 for an object of `kind`. Several errors are listed in brackets, without duplicate texts. */
export function newInvalid(kind: Subject, name: string, errors: readonly FieldError[]): StatusError {
  const causes: { reason: string; message: string; field: string }[] = [];
  const seen = new Set<string>();
  let chars = 0;
  for (const error of errors) {
    if (chars > MAX_INVALID_CHARS) break;
    const { type: reason, field } = error;
    const message = shortened(error.body());
    chars += message.length + field.length;
    causes.push({ reason, message, field });
    seen.add(`${field}: ${message}`);
  }
  if (causes.length < errors.length) seen.add(`and ${errors.length - causes.length} more`);
  const texts = [...seen];
  const list = texts.length === 1 ? texts[0] : `[${texts.join(', ')}]`;
  const message = `${groupResourceName(kind)} ${quote(name)} is invalid${texts.length === 0 ? '' : `: ${list}`}`;
  return newStatusError(422, 'Invalid', message, {
    details: { ...details(kind, name), ...(causes.length === 0 ? {} : { causes }) },
  });
}

/** Whether the error is a `StatusError`, with this reason if one is given. */
export function isStatusError(error: unknown, reason?: string): error is StatusError {
  return error instanceof StatusError && (reason === undefined || error.reason === reason);
}

// Predicates of `StatusError`s by their reason. They are false for any other error.

/** Whether the error has the reason `NotFound`. */
export const isNotFound = (error: unknown): boolean => isStatusError(error, 'NotFound');
/** Whether the error has the reason `AlreadyExists`. */
export const isAlreadyExists = (error: unknown): boolean => isStatusError(error, 'AlreadyExists');
/** Whether the error has the reason `Conflict`. */
export const isConflict = (error: unknown): boolean => isStatusError(error, 'Conflict');
/** Whether the error has the reason `Forbidden`. */
export const isForbidden = (error: unknown): boolean => isStatusError(error, 'Forbidden');
/** Whether the error has the reason `Invalid`. */
export const isInvalid = (error: unknown): boolean => isStatusError(error, 'Invalid');
/** Whether the server did not reach a resource version in the time for which the request waited. */
export const isResourceVersionTooLarge = (error: unknown): boolean =>
  isStatusError(error, 'Timeout') &&
  (error.status.details?.causes ?? []).some(({ reason }) => reason === 'ResourceVersionTooLarge');
/** Whether the resource version or continue token is too old, so that the client must list again. */
export const isExpired = (error: unknown): boolean => isStatusError(error, 'Expired') || isStatusError(error, 'Gone');

/**
 * Waits for a request. Resolves to `undefined` if the request fails with an error that one of `expected` accepts. Rejects with
 * other errors.
 */
export async function tolerate<T>(
  request: Promise<T>,
  ...expected: readonly ((error: unknown) => boolean)[]
): Promise<T | undefined> {
  try {
    return await request;
  } catch (error) {
    if (expected.some((accepts) => accepts(error))) return undefined;
    throw error;
  }
}

/** Ignores that the object exists already, has changed or is gone. */
export async function tolerateRaces(write: Promise<unknown>): Promise<void> {
  await tolerate(write, isAlreadyExists, isConflict, isNotFound);
}
