/** Signs approved requests of the built-in signers. */
import { formatTime } from '../../../api/machinery/clock.ts';
import type { CertificateSigningRequest } from '../../../api/kinds/kinds.ts';
import { certificateSigningRequests } from '../../../api/client/resources.ts';
import { ReconcileLoop, type RunController } from '../controller.ts';
import { hasCondition } from './certificate-requests.ts';

/** The request violates the rules of its signer, so it is never signed. */
export class SigningRefused extends Error {
  override readonly name = 'SigningRefused';
}

/** Signs requests of the signers that it names. */
export interface CertificateSigner {
  readonly signerNames: readonly string[];
  /** Returns the certificate as PEM; throws `SigningRefused`, or another error, after which the request is retried. */
  sign(request: CertificateSigningRequest): Promise<string> | string;
}

/**
 * Builds the controller for one signer. It signs approved requests that have no certificate and are neither denied nor failed.
 */
export function certificateSigner(signer: CertificateSigner): RunController {
  return (environment, signal) => {
    const { client, clock, informers } = environment;
    const requests = informers.for(certificateSigningRequests);
    const isOurs = (request: CertificateSigningRequest): boolean =>
      signer.signerNames.includes(request.spec?.signerName ?? '') &&
      hasCondition(request, 'Approved') &&
      !hasCondition(request, 'Denied') &&
      !hasCondition(request, 'Failed') &&
      (request.status?.certificate ?? '') === '';
    const loop = new ReconcileLoop(environment, {
      workers: 5,
      baseDelayMs: 200,
      maxDelayMs: 60_000,
      reconcile: async (name) => {
        const request = requests.get('', name);
        if (request === undefined || !isOurs(request)) return;
        const status = { ...request.status };
        try {
          status.certificate = Buffer.from(await signer.sign(request)).toString('base64');
        } catch (error) {
          if (!(error instanceof SigningRefused)) throw error;
          const now = formatTime(clock.now());
          const failed = {
            type: 'Failed',
            status: 'True',
            reason: 'SignerValidationFailure',
            message: error.message,
            lastUpdateTime: now,
            lastTransitionTime: now,
          };
          status.conditions = [...(status.conditions ?? []), failed];
        }
        await client.update(certificateSigningRequests, { ...request, status }, { subresource: 'status' });
      },
    });
    const requestChanged = (request: CertificateSigningRequest): void => {
      if (isOurs(request)) loop.enqueue(request);
    };
    requests.addHandler({ add: requestChanged, update: (_, request) => requestChanged(request) });
    return loop.run(signal, requests);
  };
}
