/**
 * Deletes old signing requests: an hour after the decision, or earlier when the issued certificate has expired, or a day after
 * the creation if they are pending. No request is deleted within an hour of its creation.
 */
import { X509Certificate } from 'node:crypto';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import type { CertificateSigningRequest } from '../../../api/kinds/kinds.ts';
import { certificateSigningRequests } from '../../../api/client/resources.ts';
import { ReconcileLoop, type RunController } from '../controller.ts';
import { removalTime } from './certificate-requests.ts';

/**
 * Runs the controller that deletes old certificate signing requests. A deletion that fails is retried at least once a minute.
 */
export const runCertificateCleaner: RunController = (environment, signal) => {
  const { client, clock, informers } = environment;
  const requests = informers.for(certificateSigningRequests);
  const loop = new ReconcileLoop(environment, {
    maxDelayMs: 60_000,
    reconcile: async (name) => {
      const request = requests.get('', name);
      if (request === undefined) return;
      const leftMs = removalTime(request, expiryOf(request)) - clock.now();
      if (leftMs > 0) return loop.queue.addAfter(name, leftMs);
      await tolerate(client.delete(certificateSigningRequests, '', name), isNotFound);
    },
  });
  requests.addHandler({ add: loop.enqueue, update: (_, request) => loop.enqueue(request) });
  return loop.run(signal, requests);
};

function expiryOf(request: CertificateSigningRequest): number | undefined {
  const encoded = request.status?.certificate ?? '';
  if (encoded === '') return undefined;
  try {
    return Date.parse(new X509Certificate(Buffer.from(encoded, 'base64')).validTo);
  } catch {
    return undefined;
  }
}
