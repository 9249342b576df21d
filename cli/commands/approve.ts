/**
 * `orchlet certs approve` approves certificate signing requests: the named ones, of any signer, or else those of nodes for
 * serving certificates.
 */
import { printable, quoteText } from '../../api/meta/quote.ts';
import { isNotFound, tolerate } from '../../api/meta/status-error.ts';
import type { CertificateSigningRequest } from '../../api/kinds/kinds.ts';
import type { HttpClient } from '../../api/client/http-client.ts';
import { certificateSigningRequests, endpoints, nodes, services } from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { apiServerNames, servingFault, type ServingNames } from '../cluster/serving-requests.ts';
import { accessFlags, withCluster } from '../cluster/cluster-access.ts';
import { NODE_SERVING_SIGNER } from '../../api/pki/signer-names.ts';

interface Request {
  readonly spec?: { readonly signerName?: string; readonly username?: string };
  readonly status?: { readonly conditions?: readonly { readonly type: string }[] };
}

export const certsApprove: Command = {
  arguments: { usage: '[NAME…]', least: 0, most: Infinity },
  description:
    'Approves the named certificate signing requests; without a name those of nodes that wait for a serving certificate (--rotate-server-certificates) with their own name and addresses. Requests with other names, such as an address of the API server, wait until they are named: a node on the host of the API server has one. Look at them first: kubectl get csr.',
  flags: accessFlags,
  examples: ['orchlet certs approve', 'orchlet certs approve csr-x7k2p'],
  run: (parsed, io) =>
    withCluster(parsed, io, async ({ client, server }) => {
      const names = new Set(parsed.arguments);
      const all = (await client.list(certificateSigningRequests)).items;
      for (const name of names)
        if (!all.some(({ metadata }) => metadata.name === name))
          throw new CommandError(`there is no certificate signing request ${quoteText(name)}`);
      const pending = all.filter((object) => {
        const { spec, status } = object as KubeObject & Request;
        if ((status?.conditions ?? []).length > 0) return false;
        return names.size > 0 ? names.has(object.metadata.name ?? '') : spec?.signerName === NODE_SERVING_SIGNER;
      });
      let isEachApproved = true;
      const allowed = names.size > 0 || pending.length === 0 ? undefined : await servingNames(client, server);
      for (const object of pending) {
        const fault = allowed === undefined ? '' : servingFault(object as CertificateSigningRequest, allowed);
        if (fault !== '') {
          const name = object.metadata.name ?? '';
          io.stderr.write(
            `orchlet: ${name} is not approved: ${printable(fault)} (to approve it: orchlet certs approve ${name})\n`,
          );
          isEachApproved = false;
          continue;
        }
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
        io.stdout.write(`approved ${object.metadata.name ?? ''} of ${printable(spec?.username ?? '')}\n`);
      }
      if (pending.length === 0) io.stdout.write('No request waits for approval\n');
      return isEachApproved ? 0 : 1;
    }),
};

async function servingNames(client: HttpClient, server: string): Promise<ServingNames> {
  const [{ items }, service, apiEndpoints] = await Promise.all([
    client.list(nodes),
    tolerate(client.get(services, 'default', 'kubernetes'), isNotFound),
    tolerate(client.get(endpoints, 'default', 'kubernetes'), isNotFound),
  ]);
  const { clusterIPs = [] } = (service?.spec ?? {}) as { readonly clusterIPs?: readonly string[] };
  return {
    nodes: items,
    apiServer: apiServerNames(server, clusterIPs, apiEndpoints === undefined ? [] : [apiEndpoints]),
  };
}
