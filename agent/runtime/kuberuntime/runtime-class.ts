/** The runtime's handler that a pod's RuntimeClass stands for: asked once for each sandbox that is made. */
import type { Client } from '../../../api/machinery/client.ts';
import { runtimeClasses } from '../../../api/machinery/resources.ts';
import type { Pod } from '../../model/core-types.ts';

/** `''` is the runtime's default; so is any class where no API server could know it. */
export async function runtimeHandlerOf(pod: Pod, client: Pick<Client, 'get'> | undefined): Promise<string> {
  const name = pod.spec.runtimeClassName ?? '';
  if (name === '' || client === undefined) return '';
  const { handler } = (await client.get(runtimeClasses, '', name)) as { handler?: string };
  return handler ?? '';
}
