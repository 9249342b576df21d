/**
 * Limits what the agent accepts from device plugins. Their responses appear in the Node object, in the statuses of pods, in the
 * labels of metrics and in the checkpoint. One plugin must not make any of these too large or invalid for the API server. Pure.
 */
import { qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import type { PluginDevice } from './device-endpoint.ts';
import { HEALTHY, UNHEALTHY } from './schema.ts';

/** The maximum number of resources of the node, those that it had since the start of the agent included. */
export const MAX_RESOURCES = 256;
/** The maximum number of devices of all resources together. */
export const MAX_DEVICES = 100_000;
/** The maximum number of characters of a rejected name that errors and logs show. */
export const MAX_SHOWN_CHARS = 512;
/** The maximum number of characters of a device id, which appears in the statuses of pods. */
const LONGEST_ID = 253;
/** The largest response for a container. */
const MAX_ANSWER_BYTES = 256 * 1024;

/** Whether the name is one of an extended resource. */
export function isPluginResource(name: string): boolean {
  const [domain = '', ...others] = name.split('/');
  if (others.length !== 1 || domain === 'kubernetes.io' || domain.endsWith('.kubernetes.io')) return false;
  // The quota of the resource has this name.
  return !name.startsWith('requests.') && qualifiedNameErrors(`requests.${name}`).length === 0;
}

/**
 * Returns the devices by id, with a health that the API knows and NUMA nodes that the host has. Throws if the plugin lists
 * more than `most` devices, or one that cannot be named in the API.
 */
export function acceptDevices(
  devices: readonly PluginDevice[],
  { numaNodes, most }: { readonly numaNodes: readonly number[]; readonly most: number },
): ReadonlyMap<string, PluginDevice> {
  if (devices.length > most) throw new Error(`the plugin lists ${devices.length} devices, ${most} are accepted`);
  const hostNodes = new Set(numaNodes);
  return new Map(
    devices.map(({ id, health, topology }) => {
      if (id === '' || id.length > LONGEST_ID || /\p{Cc}/u.test(id))
        throw new Error(`the plugin lists a device with the invalid id ${quoteText(id.slice(0, LONGEST_ID))}`);
      const nodes = (topology?.nodes ?? []).filter((node) => hostNodes.has(node.id));
      return [
        id,
        { id, health: health === HEALTHY ? HEALTHY : UNHEALTHY, topology: nodes.length === 0 ? null : { nodes } },
      ];
    }),
  );
}

/**
 * Throws if the answer is too large, or contains a NUL character, which no argument, environment variable or path can have. The
 * answers of DRA drivers have the same limits, because they are in one checkpoint as well.
 */
export function checkAnswer(answer: object, what = 'the allocation response'): void {
  const text = JSON.stringify(answer);
  if (text.length > MAX_ANSWER_BYTES) throw new Error(`${what} has more than ${MAX_ANSWER_BYTES} bytes`);
  if (text.includes('\\u0000')) throw new Error(`${what} has a NUL character`);
}
