/**
 * Gives pods of all sources the shape that the agent relies on: the types of the schema, texts that are quantities and times
 * where it has those, and no null in the place of a list of containers. Neither a server nor a file is trusted to have sent
 * them. The mux calls it once for each pod before anything else reads the pod.
 */
import { setMember } from '../../api/codec/json.ts';
import type { JsonValue } from '../../api/meta/object.ts';
import { decodeStruct } from '../../api/schema/decode.ts';
import { loadSchema } from '../../api/schema/table.ts';
import { ANNOTATION_CONFIG_SOURCE } from '../model/pod-kinds.ts';
import type { Pod } from '../model/pod.ts';
import { identityFault } from './pod-identity.ts';
import type { PodSourceName } from './pod-source.ts';

/** A pod that the agent can run, or why it cannot, with what is known of its identity. */
export type ShapedPod = { readonly pod: Pod } | { readonly fault: string; readonly name: string; readonly uid: string };

/** Far more than a pod has. Encoding a value of ten thousand levels would exhaust the stack. */
const MOST_LEVELS = 500;
const MOST_FAULT_CHARACTERS = 1024;

/**
 * Returns a copy of the pod whose annotation of the source is that source, because clients can write the annotation: a pod of
 * the API server that counted as static would be critical to its node. Fields that the schema lacks are left out, as in the
 * kubelet.
 */
export function shapedPod(value: unknown, source: PodSourceName): ShapedPod {
  const struct = loadSchema().kind('', 'v1', 'Pod');
  if (struct === undefined) throw new Error('the schema has no pods');
  let pod: Pod;
  try {
    pod = decodeStruct(struct, bounded(value)).value as unknown as Pod;
  } catch (error) {
    return unusable(value, error instanceof Error ? error.message : String(error));
  }
  // An API server sends null for an empty list.
  pod.spec.containers ??= [];
  pod.metadata.annotations = { ...pod.metadata.annotations, [ANNOTATION_CONFIG_SOURCE]: source };
  const fault = identityFault(pod);
  return fault === '' ? { pod } : unusable(value, fault);
}

function unusable(value: unknown, fault: string): ShapedPod {
  const { metadata } = value as { readonly metadata?: Readonly<Record<string, unknown>> | null };
  const text = (field: string): string => (typeof metadata?.[field] === 'string' ? cut(metadata[field]) : '');
  return { fault: cut(fault), name: `${text('namespace')}/${text('name')}`, uid: text('uid') };
}

/** Copies a JSON value. Whole numbers get the nearest value with which the agent can calculate. */
function bounded(value: unknown, levels = 0): JsonValue {
  if (levels > MOST_LEVELS) throw new Error(`the pod has more than ${MOST_LEVELS} levels`);
  if (typeof value === 'bigint') return nearest(Number(value));
  if (typeof value === 'number') return Number.isInteger(value) ? nearest(value) : value;
  if (Array.isArray(value)) return value.map((item) => bounded(item, levels + 1));
  if (typeof value !== 'object' || value === null) return value as JsonValue;
  const copy: { [key: string]: JsonValue } = {};
  for (const [key, member] of Object.entries(value))
    if (member !== undefined) setMember(copy, key, bounded(member, levels + 1));
  return copy;
}

const nearest = (number: number): number =>
  Math.min(Math.max(number, Number.MIN_SAFE_INTEGER), Number.MAX_SAFE_INTEGER);

const cut = (text: string): string =>
  text.length <= MOST_FAULT_CHARACTERS ? text : `${text.slice(0, MOST_FAULT_CHARACTERS)}…`;
