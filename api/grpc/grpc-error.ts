/** The error of a gRPC call: its status by name and the server's text. */

/** By gRPC's numbers, named as Go's client names them. */
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
export type GrpcStatus = (typeof STATUS_NAMES)[number];

/** Texts of servers end up in logs, events and statuses. */
const MAX_DETAILS_CHARACTERS = 8192;

export class GrpcError extends Error {
  override readonly name = 'GrpcError';
  readonly status: GrpcStatus;
  /** The server's text without gRPC's prefix, cut off where it is longer than texts of people are. */
  readonly details: string;
  constructor(status: GrpcStatus, details: string, options?: ErrorOptions) {
    const bounded = details.slice(0, MAX_DETAILS_CHARACTERS);
    super(`rpc error: code = ${status} desc = ${bounded}`, options);
    this.status = status;
    this.details = bounded;
  }
}

/** The name of a status number; numbers that gRPC does not define are `Unknown`. */
export function statusOf(code: number): GrpcStatus {
  return STATUS_NAMES[code] ?? 'Unknown';
}
