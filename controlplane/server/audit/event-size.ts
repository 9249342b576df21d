/** Estimates how much memory an audit event takes while it waits, and shortens events when memory is short. Pure. */
import type { AuditEvent } from './event.ts';

/** The memory in bytes of an object or array in V8 without pointer compression: its header and the header of its elements. */
const OBJECT_BYTES = 64;
const SLOT_BYTES = 16;
/** The length up to which texts are kept that a client writes freely into its request or into a header. */
const LONGEST_TEXT = 4096;
/** The number of source addresses of a request that are kept: the last ones, which proxies nearby have added. */
const MAX_ADDRESSES = 16;
const MAX_ADDRESS_CHARS = 100;

/**
 * Estimates the bytes of memory of a decoded value, in time that grows with its values. It ends beyond `enough`, as a list may
 * have millions of values.
 */
export function memoryOf(value: unknown, enough = Infinity): number {
  let bytes = 0;
  const left: unknown[] = [value];
  while (left.length > 0 && bytes <= enough) {
    const one = left.pop();
    if (typeof one === 'string') bytes += SLOT_BYTES + one.length;
    else if (typeof one !== 'object' || one === null) bytes += SLOT_BYTES;
    else {
      const values: readonly unknown[] = Array.isArray(one) ? one : Object.values(one);
      bytes += OBJECT_BYTES + SLOT_BYTES * values.length;
      for (const inner of values) left.push(inner);
    }
  }
  return bytes;
}

/**
 * Returns the event without the objects of request and response, as `--audit-log-truncate-enabled` shortens large events, and
 * with short texts where clients choose their length.
 */
export function withoutObjects(event: AuditEvent): AuditEvent {
  const { requestObject: _request, responseObject: _response, annotations, ...members } = event;
  const { requestURI, userAgent, sourceIPs } = members;
  return {
    ...members,
    ...(typeof requestURI === 'string' ? { requestURI: requestURI.slice(0, LONGEST_TEXT) } : {}),
    ...(typeof userAgent === 'string' ? { userAgent: userAgent.slice(0, LONGEST_TEXT) } : {}),
    ...(Array.isArray(sourceIPs) ? { sourceIPs: shortAddresses(sourceIPs as readonly string[]) } : {}),
    annotations: { ...(annotations as object | undefined), 'audit.k8s.io/truncated': 'true' },
  };
}

/** Shortens a list of addresses to its last ones, because the address of the connection is the last one. */
const shortAddresses = (addresses: readonly string[]): readonly string[] =>
  addresses.slice(-MAX_ADDRESSES).map((address) => address.slice(0, MAX_ADDRESS_CHARS));
