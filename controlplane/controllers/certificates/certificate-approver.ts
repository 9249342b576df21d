/**
 * Approves client certificates of nodes: the first one of a joining node, and renewals by the node itself, if the requesting
 * user has the permission for it.
 */
import { parseCsr } from '../../../api/pki/certificate-request.ts';
import { formatTime } from '../../../api/machinery/clock.ts';
import type { CertificateSigningRequest } from '../../../api/kinds/kinds.ts';
import { certificateSigningRequests, subjectAccessReviews } from '../../../api/client/resources.ts';
import { ReconcileLoop, type RunController } from '../controller.ts';
import { hasCondition, isPending, isNodeClientRequest, subjectOf } from './certificate-requests.ts';

interface Recognizer {
  readonly subresource: string;
  readonly message: string;
  readonly self: boolean;
}

const RECOGNIZERS: readonly Recognizer[] = [
  {
    subresource: 'selfnodeclient',
    message: 'Auto approving self kubelet client certificate after SubjectAccessReview.',
    self: true,
  },
  {
    subresource: 'nodeclient',
    message: 'Auto approving kubelet client certificate after SubjectAccessReview.',
    self: false,
  },
];

/** Runs the controller that approves client certificates of nodes. It ignores other requests. */
export const runCertificateApprover: RunController = (environment, signal) => {
  const { client, clock, informers } = environment;
  const requests = informers.for(certificateSigningRequests);
  const mayCreate = async (request: CertificateSigningRequest, subresource: string): Promise<boolean> => {
    const { username = '', uid, groups, extra } = request.spec ?? {};
    const review = await client.create(subjectAccessReviews, '', {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SubjectAccessReview',
      metadata: {},
      spec: {
        user: username,
        ...(uid === undefined ? {} : { uid }),
        ...(groups === undefined ? {} : { groups }),
        ...(extra === undefined ? {} : { extra }),
        resourceAttributes: {
          group: 'certificates.k8s.io',
          resource: 'certificatesigningrequests',
          subresource,
          verb: 'create',
        },
      },
    });
    return review.status?.allowed === true;
  };
  const loop = new ReconcileLoop(environment, {
    baseDelayMs: 200,
    maxDelayMs: 60_000,
    reconcile: async (name) => {
      const request = requests.get('', name);
      if (request === undefined || !isPending(request) || (request.status?.certificate ?? '') !== '') return;
      const subject = subjectOf(request, parseCsr);
      if (subject === undefined || !isNodeClientRequest(request, subject)) return;
      const tried: string[] = [];
      for (const { subresource, message, self } of RECOGNIZERS) {
        if (self && subject.commonName !== request.spec?.username) continue;
        tried.push(subresource);
        if (!(await mayCreate(request, subresource))) continue;
        const condition = {
          type: 'Approved',
          status: 'True',
          reason: 'AutoApproved',
          message,
          lastUpdateTime: formatTime(clock.now()),
        };
        const conditions = [...(request.status?.conditions ?? []), condition];
        await client.update(
          certificateSigningRequests,
          { ...request, status: { ...request.status, conditions } },
          { subresource: 'approval' },
        );
        return;
      }
      if (tried.length > 0)
        throw new Error(`recognized csr "${name}" as [${tried.join(' ')}] but subject access review was not approved`);
    },
  });
  const requestChanged = (request: CertificateSigningRequest): void => {
    if (!hasCondition(request, 'Approved') && !hasCondition(request, 'Denied')) loop.enqueue(request);
  };
  requests.addHandler({ add: requestChanged, update: (_, request) => requestChanged(request) });
  return loop.run(signal, requests);
};
