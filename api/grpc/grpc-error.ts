/** Defines the error of a gRPC call, with the name of its status. */

/** The status names by their numbers. They are the names of gRPC's Go client. */
const STATUS_NAMES = [
  'OK',
  'Canceled',
  'Unknown',
  'InvalidArgument',
  'DeadlineExceeded',
  'NotFound',
  'AlreadyExists',
  'PermissionDenied',
  'ResourceExhausted',
  'FailedPrecondition',
  'Aborted',
  'OutOfRange',
  'Unimplemented',
  'Internal',
  'Unavailable',
  'DataLoss',
  'Unauthenticated',
] as const;
/** The name of a gRPC status code. */
export type GrpcStatus = (typeof STATUS_NAMES)[number];

/** The maximum length of a server's message, because it appears in logs, events and statuses. */
const MAX_DETAILS_CHARACTERS = 8192;

/** Returns the beginning of a server's message. */
export const boundedDetails = (details: string): string => details.slice(0, MAX_DETAILS_CHARACTERS);

/** A call that failed. */
export class GrpcError extends Error {
  override readonly name = 'GrpcError';
  readonly status: GrpcStatus;
  /** The message without gRPC's prefix. A long message is truncated. */
  readonly details: string;
  constructor(status: GrpcStatus, details: string, options?: ErrorOptions) {
    const bounded = boundedDetails(details);
    super(`rpc error: code = ${status} desc = ${bounded}`, options);
    this.status = status;
    this.details = bounded;
  }
}

/** Returns the name of a status number. A number that gRPC does not define is `Unknown`. */
export function statusOf(code: number): GrpcStatus {
  return STATUS_NAMES[code] ?? 'Unknown';
}
