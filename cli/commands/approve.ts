/** `orchlet certs approve`: approves the certificate requests of nodes. */
import { quoteText } from '../../api/meta/quote.ts';
import { certificateSigningRequests } from '../../api/machinery/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { type Command, CommandError } from '../command.ts';
import { accessFlags, withCluster } from '../cluster-access.ts';

const SERVING = 'kubernetes.io/kubelet-serving';

interface Request {
  readonly spec?: { readonly signerName?: string; readonly username?: string };
  readonly status?: { readonly conditions?: readonly { readonly type: string }[] };
}

export const certsApprove: Command = {
  name: 'certs approve',
  summary: 'approve certificates that nodes have requested',
  arguments: { usage: '[NAME…]', least: 0, most: Infinity },
  description:
    'Approves the named certificate signing requests; without a name those of nodes that wait for a serving certificate (--rotate-server-certificates). Look at them first where hosts of others can reach the API: kubectl get csr.',
  flags: accessFlags,
  examples: ['orchlet certs approve', 'orchlet certs approve csr-x7k2p'],
  run: (parsed, io) =>
    withCluster(parsed, io, async ({ client }) => {
      const names = new Set(parsed.arguments);
      const all = (await client.list(certificateSigningRequests)).items;
      for (const name of names)
        if (!all.some(({ metadata }) => metadata.name === name))
          throw new CommandError(`there is no certificate signing request ${quoteText(name)}`);
      const pending = all.filter((object) => {
        const { spec, status } = object as KubeObject & Request;
        if ((status?.conditions ?? []).length > 0) return false;
        return names.size > 0 ? names.has(object.metadata.name ?? '') : spec?.signerName === SERVING;
      });
      for (const object of pending) {
        const { spec, status } = object as KubeObject & Request;
        const condition = {
          type: 'Approved',
          status: 'True',
          reason: 'OrchletApprove',
          message: 'This request was approved by orchlet certs approve.',
        };
        await client.update(
          certificateSigningRequests,
          { ...object, status: { ...status, conditions: [condition] } } as KubeObject,
          { subresource: 'approval' },
        );
        io.stdout.write(`approved ${object.metadata.name ?? ''} of ${spec?.username ?? ''}\n`);
      }
      if (pending.length === 0) io.stdout.write('No request waits for approval\n');
      return 0;
    }),
};
