/** Defines the messages and methods of etcd's API v3 that are used, and the addresses of its servers. */
import { ETCD_CLIENT_PORT } from '../../../api/meta/etcd-ports.ts';

/** The fields by message, each with its number and type, from etcd's `rpc.proto` and `kv.proto`. */
export const ETCD_MESSAGES = {
  ResponseHeader: { revision: '3 int64' },
  RangeRequest: {
    key: '1 bytes',
    rangeEnd: '2 bytes',
    limit: '3 int64',
    revision: '4 int64',
    countOnly: '9 bool',
  },
  KeyValue: {
    key: '1 bytes',
    createRevision: '2 int64',
    modRevision: '3 int64',
    version: '4 int64',
    value: '5 bytes',
    lease: '6 int64',
  },
  RangeResponse: { header: '1 ResponseHeader', kvs: '2 KeyValue[]', more: '3 bool' },
  PutRequest: { key: '1 bytes', value: '2 bytes', lease: '3 int64' },
  PutResponse: { header: '1 ResponseHeader' },
  DeleteRangeRequest: { key: '1 bytes', rangeEnd: '2 bytes' },
  DeleteRangeResponse: { header: '1 ResponseHeader', deleted: '2 int64' },
  // `result` is EQUAL (0). `target` is the version (0), which is 0 for a key that does not exist, or the revision of the last
  // write (2).
  Compare: { target: '2 int32', key: '3 bytes', version: '4 int64', modRevision: '6 int64' },
  RequestOp: {
    requestRange: '1 RangeRequest',
    requestPut: '2 PutRequest',
    requestDeleteRange: '3 DeleteRangeRequest',
  },
  ResponseOp: { responseRange: '1 RangeResponse' },
  TxnRequest: { compare: '1 Compare[]', success: '2 RequestOp[]', failure: '3 RequestOp[]' },
  TxnResponse: { header: '1 ResponseHeader', succeeded: '2 bool', responses: '3 ResponseOp[]' },
  WatchCreateRequest: { key: '1 bytes', rangeEnd: '2 bytes', startRevision: '3 int64', fragment: '8 bool' },
  WatchRequest: { createRequest: '1 WatchCreateRequest' },
  // `type` is PUT (0) or DELETE (1).
  Event: { type: '1 int32', kv: '2 KeyValue' },
  WatchResponse: {
    header: '1 ResponseHeader',
    created: '3 bool',
    canceled: '4 bool',
    compactRevision: '5 int64',
    cancelReason: '6 string',
    fragment: '7 bool',
    events: '11 Event[]',
  },
  LeaseGrantRequest: { ttl: '1 int64', id: '2 int64' },
  LeaseGrantResponse: { header: '1 ResponseHeader', error: '4 string' },
  CompactionRequest: { revision: '1 int64' },
  CompactionResponse: { header: '1 ResponseHeader' },
  // `action` is GET (0). `alarm` is NOSPACE (1) or CORRUPT (2).
  AlarmRequest: { action: '1 int32' },
  AlarmMember: { alarm: '2 int32' },
  AlarmResponse: { header: '1 ResponseHeader', alarms: '2 AlarmMember[]' },
  DefragmentRequest: {},
  DefragmentResponse: { header: '1 ResponseHeader' },
  StatusRequest: {},
  StatusResponse: { header: '1 ResponseHeader', version: '2 string', dbSize: '3 int64' },
} as const;

/** The service, request and response of each method. */
export const ETCD_METHODS = {
  range: ['etcdserverpb.KV', 'RangeRequest', 'RangeResponse'],
  put: ['etcdserverpb.KV', 'PutRequest', 'PutResponse'],
  deleteRange: ['etcdserverpb.KV', 'DeleteRangeRequest', 'DeleteRangeResponse'],
  txn: ['etcdserverpb.KV', 'TxnRequest', 'TxnResponse'],
  compact: ['etcdserverpb.KV', 'CompactionRequest', 'CompactionResponse'],
  watch: ['etcdserverpb.Watch', 'WatchRequest', 'WatchResponse'],
  leaseGrant: ['etcdserverpb.Lease', 'LeaseGrantRequest', 'LeaseGrantResponse'],
  alarm: ['etcdserverpb.Maintenance', 'AlarmRequest', 'AlarmResponse'],
  defragment: ['etcdserverpb.Maintenance', 'DefragmentRequest', 'DefragmentResponse'],
  status: ['etcdserverpb.Maintenance', 'StatusRequest', 'StatusResponse'],
} as const;

/** The value `Compare.CompareTarget.VERSION`. */
export const COMPARE_VERSION = 0;
/** The value `Compare.CompareTarget.MOD`. */
export const COMPARE_MOD_REVISION = 2;

/** The value `Event.EventType.DELETE`. */
export const EVENT_DELETE = 1;
/** `AlarmType.NOSPACE`: the quota of the database is used up. */
export const ALARM_NOSPACE = 1;

/** Returns the end of the range of all keys that begin with `prefix`: the last byte counted up. */
export function endOf(prefix: string): Buffer {
  const end = Buffer.from(prefix);
  end[end.length - 1] = (end.at(-1) ?? 0) + 1;
  return end;
}

/** The maximum size of a message: a page of the largest objects, which have 1.5 MiB each. */
export const LARGEST_MESSAGE_BYTES = 1024 * 1024 * 1024;

/** IDs of leases are below this, so that a number holds them exactly. */
export const LEASE_IDS = 2 ** 48;

/**
 * Returns the gRPC target of a server's URL, such as `etcd-1:2379` of `https://etcd-1`, and whether the server uses TLS.
 * Returns `undefined` if the text is no URL with `http` or `https`.
 */
export function etcdTarget(url: string): { readonly target: string; readonly isTls: boolean } | undefined {
  const parsed = URL.parse(url);
  if (parsed === null || (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') || parsed.host === '')
    return undefined;
  // The parser drops a port that is the default of the scheme, but another scheme has no default.
  const { port = '' } = URL.parse(url.replace(/^https?:/i, 'etcd:')) ?? {};
  return {
    target: `${parsed.hostname}:${port === '' ? ETCD_CLIENT_PORT : port}`,
    isTls: parsed.protocol === 'https:',
  };
}
