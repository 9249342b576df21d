/** Resolves the runtime handler of a pod's RuntimeClass. */
import type { Client } from '../../../api/client/client.ts';
import { runtimeClasses } from '../../../api/client/resources.ts';
import type { Pod } from '../../base/model/pod.ts';

/**
 * Resolves to the handler. Empty means the runtime's default, which also applies without an API server. Rejects if the class
 * does not exist or cannot be read.
 */
export async function runtimeHandlerOf(pod: Pod, client: Pick<Client, 'get'> | undefined): Promise<string> {
  const name = pod.spec.runtimeClassName ?? '';
  if (name === '' || client === undefined) return '';
  const { handler } = (await client.get(runtimeClasses, '', name)) as { handler?: string };
  return handler ?? '';
}
