/** Builds audit events (`audit.k8s.io/v1`) for a stage of a request. Pure. */
import { type UserInfo, userInfoJson } from '../../model/user-info.ts';
import type { RequestInfo } from '../request-info.ts';
import type { Level, Stage } from './policy.ts';

interface EventInput {
  readonly level: Level;
  readonly stage: Stage;
  readonly auditId: string;
  readonly requestUri: string;
  readonly info: RequestInfo;
  readonly user: UserInfo;
  readonly impersonatedUser: UserInfo | undefined;
  readonly sourceIps: readonly string[];
  readonly userAgent: string;
  readonly receivedMs: number;
  readonly stageMs: number;
  readonly annotations: ReadonlyMap<string, string> | undefined;
  /** The fields of the object in the body of the request. */
  readonly bodyFields: { readonly name?: string; readonly uid?: string; readonly resourceVersion?: string };
  /** 0 before there is a response. */
  readonly code: number;
  /** The `Status` of the response, if it is one. */
  readonly status: Readonly<Record<string, unknown>> | undefined;
  readonly requestObject: unknown;
  readonly responseObject: unknown;
}

/** An event in its JSON form. */
export type AuditEvent = Readonly<Record<string, unknown>>;

/** Builds an audit event. Leaves out fields without a value. */
export function auditEvent(input: EventInput): AuditEvent {
  const { info } = input;
  return {
    kind: 'Event',
    apiVersion: 'audit.k8s.io/v1',
    level: input.level,
    auditID: input.auditId,
    stage: input.stage,
    requestURI: input.requestUri,
    verb: info.verb,
    user: userInfoJson(input.user),
    ...(input.impersonatedUser === undefined ? {} : { impersonatedUser: userInfoJson(input.impersonatedUser) }),
    sourceIPs: input.sourceIps,
    ...(input.userAgent === '' ? {} : { userAgent: input.userAgent }),
    ...(info.isResource ? { objectRef: objectRef(info, input.bodyFields) } : {}),
    ...(input.code === 0 ? {} : { responseStatus: responseStatus(input) }),
    ...(input.requestObject === undefined ? {} : { requestObject: input.requestObject }),
    ...(input.responseObject === undefined ? {} : { responseObject: input.responseObject }),
    requestReceivedTimestamp: microTime(input.receivedMs),
    stageTimestamp: microTime(input.stageMs),
    ...(input.annotations === undefined || input.annotations.size === 0
      ? {}
      : { annotations: Object.fromEntries(input.annotations) }),
  };
}

function objectRef(info: RequestInfo, bodyFields: EventInput['bodyFields']): object {
  const name = info.name === '' ? (bodyFields.name ?? '') : info.name;
  return {
    resource: info.resource,
    ...(info.namespace === '' ? {} : { namespace: info.namespace }),
    ...(name === '' ? {} : { name }),
    ...(bodyFields.uid === undefined ? {} : { uid: bodyFields.uid }),
    ...(info.group === '' ? {} : { apiGroup: info.group }),
    apiVersion: info.version,
    ...(bodyFields.resourceVersion === undefined ? {} : { resourceVersion: bodyFields.resourceVersion }),
    ...(info.subresource === '' ? {} : { subresource: info.subresource }),
  };
}

/** Returns the status of a response for the event: the code and, if the response is a Status, its other fields. */
function responseStatus({ code, status }: EventInput): object {
  if (status === undefined) return { metadata: {}, code };
  const { status: outcome, message, reason, details } = status;
  return {
    metadata: {},
    ...(outcome === undefined ? {} : { status: outcome }),
    ...(message === undefined ? {} : { message }),
    ...(reason === undefined ? {} : { reason }),
    ...(details === undefined ? {} : { details }),
    code,
  };
}

const microTime = (ms: number): string => new Date(ms).toISOString().replace('Z', '000Z');

/** Removes `metadata.managedFields` from an object, or from the items of a list. */
export function withoutManagedFields(object: unknown): unknown {
  if (typeof object !== 'object' || object === null) return object;
  const { metadata, items, ...members } = object as Record<string, unknown>;
  const stripped =
    typeof metadata === 'object' && metadata !== null
      ? { metadata: Object.fromEntries(Object.entries(metadata).filter(([name]) => name !== 'managedFields')) }
      : metadata === undefined
        ? {}
        : { metadata };
  return {
    ...members,
    ...stripped,
    ...(items === undefined ? {} : { items: Array.isArray(items) ? items.map(withoutManagedFields) : items }),
  };
}
