/** Removes the pods of the agent from every container runtime of this host, and the network of those in Docker. */
import { criLeftovers, dockerLeftovers, endpointsToSearch, type Leftover } from '../../agent/runtime/leftovers.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import type { ResetStep, ResetTarget } from './target.ts';

/** A runtime that does not answer is a leftover that cannot be removed, as its pods may still be there. */
export const pods: ResetStep = {
  name: 'pods',
  async find({ record, instance, podUids, clock }: ResetTarget) {
    const found: Leftover[] = [];
    const silent: string[] = [];
    for (const { docker, cri } of endpointsToSearch({ docker: record.dockerEndpoint, cri: record.criEndpoint })) {
      const search = { instance, podUids, clock };
      try {
        found.push(...(await (cri === '' ? dockerLeftovers(docker, search) : criLeftovers(cri, search))));
      } catch (error) {
        silent.push(`${cri || docker}: ${errorMessage(error)}`);
      }
    }
    for (const { podUid = '' } of found) if (podUid !== '') podUids.add(podUid);
    return [...found, ...silent.map(unanswered)];
  },
};

/** Reports a runtime that does not answer as a leftover, so that the other runtimes are still searched. */
function unanswered(text: string): Leftover {
  return {
    text: `pods in a runtime that does not answer (${text})`,
    remove: () => Promise.reject(new Error('start the runtime and repeat the reset, if it has pods of this node')),
  };
}
