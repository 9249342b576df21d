/**
 * The downward API: formats fields of a pod and resources of a container as text, for environment variables and volumes. Pure.
 */
import { ownMember } from '../../../api/meta/own-member.ts';
import { compareQuantities, milliUnits, parseQuantity } from '../../../api/meta/quantity.ts';
import type { Container, Pod } from '../../base/model/pod.ts';
import { podLevel } from './resources.ts';

interface DownwardFacts {
  readonly hostIps: readonly string[];
  /** The addresses of the running sandbox. If absent, those of the pod's status apply. */
  readonly podIps?: readonly string[];
}

function formatMap(map: Readonly<Record<string, string>> | undefined): string {
  return Object.entries(map ?? {})
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => `${key}=${quoted(value)}`)
    .join('\n');
}

/** The escapes of control characters that have letters in Go. */
const ESCAPES: ReadonlyMap<string, string> = new Map([
  ['\x07', 'a'],
  ['\b', 'b'],
  ['\f', 'f'],
  ['\n', 'n'],
  ['\r', 'r'],
  ['\t', 't'],
  ['\v', 'v'],
  ['\\', '\\'],
  ['"', '"'],
]);

/** Quotes a text as Go does, because programs read the files of the downward API with Go's unquoting. */
function quoted(text: string): string {
  const escaped = text.replaceAll(/["\\]|[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu, (character) => {
    const letter = ESCAPES.get(character);
    if (letter !== undefined) return `\\${letter}`;
    const code = character.codePointAt(0) ?? 0;
    const hex = (digits: number): string => code.toString(16).padStart(digits, '0');
    if (code < 0x80) return `\\x${hex(2)}`;
    return code > 0xffff ? `\\U${hex(8)}` : `\\u${hex(4)}`;
  });
  return `"${escaped}"`;
}

/**
 * Returns the value of a field of the pod as text. Throws for a path that the API does not define. Maps are one line for each
 * entry: `key="value"`.
 */
export function fieldValue(pod: Pod, path: string, facts: DownwardFacts): string {
  const subscript = /^(metadata\.(?:labels|annotations))\['(.*)'\]$/.exec(path);
  if (subscript !== null) {
    const map = subscript[1] === 'metadata.labels' ? pod.metadata.labels : pod.metadata.annotations;
    return map?.[subscript[2] ?? ''] ?? '';
  }
  const podIps = facts.podIps ?? (pod.status?.podIPs ?? []).map((entry) => entry.ip ?? '');
  switch (path) {
    case 'metadata.name':
      return pod.metadata.name;
    case 'metadata.namespace':
      return pod.metadata.namespace;
    case 'metadata.uid':
      return pod.metadata.uid;
    case 'metadata.labels':
      return formatMap(pod.metadata.labels);
    case 'metadata.annotations':
      return formatMap(pod.metadata.annotations);
    case 'spec.nodeName':
      return pod.spec.nodeName ?? '';
    case 'spec.serviceAccountName':
      return pod.spec.serviceAccountName ?? '';
    case 'status.hostIP':
      return facts.hostIps[0] ?? '';
    case 'status.hostIPs':
      return facts.hostIps.join(',');
    case 'status.podIP':
      return podIps[0] ?? '';
    case 'status.podIPs':
      return podIps.join(',');
    default:
      throw new Error(`unsupported fieldPath: ${path}`);
  }
}

/** The resources of which a container without a limit may use the node's whole allocatable amount. */
const OVERCOMMITTED = new Set(['cpu', 'memory', 'ephemeral-storage']);

/**
 * Returns a resource such as `limits.cpu` in units of the divisor, rounded up. Without a limit of the container, the pod's
 * limit applies, and without that the node's allocatable amount, for the resources in `OVERCOMMITTED`. Any other resource that
 * the container does not state is `0`.
 */
export function resourceValue(
  pod: Pod,
  container: Container,
  { resource, divisor }: { readonly resource: string; readonly divisor: string },
  allocatable: Readonly<Record<string, string>>,
): string {
  const [list = '', ...nameParts] = resource.split('.');
  const name = nameParts.join('.');
  const stated = (list === 'limits' ? container.resources?.limits : container.resources?.requests) ?? {};
  let text = (stated as Record<string, string>)[name];
  const isMissing = text === undefined || parseQuantity(text).nano === 0n;
  if (isMissing && list === 'limits' && OVERCOMMITTED.has(name))
    text = ownMember(podLevel(pod, 'limits'), name) ?? ownMember(allocatable, name);
  const unit = divisor === '0' || divisor === '' ? '1' : divisor;
  if (text === undefined) return '0';
  const value = milliUnits(parseQuantity(text));
  const by = milliUnits(parseQuantity(unit));
  if (compareQuantities(parseQuantity(unit), parseQuantity('0')) <= 0) return '0';
  return String((value + by - 1n) / by);
}
