/** Creates the user namespaces of pods, from the ids that the host reserves for them. */
import { readFile } from 'node:fs/promises';
import { podIdRange, UserNamespaces } from '../runtime/kuberuntime/user-namespaces.ts';
import type { Base } from './base.ts';

/**
 * Uses the subordinate ids that the host assigns to the user `kubelet`, or nearly all ids if it assigns none. Rejects if the
 * assigned ids are unusable, or too few for `--max-pods`.
 */
export async function userNamespaces({ flags, rootDirectory }: Base): Promise<UserNamespaces> {
  const [passwd = '', subuid = '', subgid = ''] = await Promise.all(
    // A host without these files assigns no ids to users.
    ['/etc/passwd', '/etc/subuid', '/etc/subgid'].map((path) => readFile(path, 'utf8').catch(() => '')),
  );
  const idsPerPod = flags.userNamespaceIdsPerPod;
  const range = podIdRange({ passwd, subuid, subgid }, { idsPerPod, maxPods: flags.maxPods });
  return new UserNamespaces({ rootDirectory, idsPerPod, range });
}
