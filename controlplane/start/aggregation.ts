/** Creates the parts that call other servers: the aggregator of API servers, and the webhooks that convert custom resources. */
import { clientMetrics } from '../../api/client/client-metrics.ts';
import { apiServices, customResourceDefinitions, endpointSlices, services } from '../../api/client/resources.ts';
import { endpointOf, failedCall } from '../security/admission/webhook/endpoint.ts';
import { answerFault, decodedReview } from '../security/admission/webhook/webhook-answer.ts';
import { aggregationMetrics } from '../registry/aggregation/aggregation-metrics.ts';
import { Aggregator } from '../registry/aggregation/aggregator.ts';
import { startAutoRegistration } from '../registry/aggregation/auto-registration.ts';
import { WebhookClient } from '../security/webhooks/webhook-client.ts';
import type { CallConversion } from '../registry/custom-resources/webhook-conversion.ts';
import { SYSTEM_USER } from '../model/system-user.ts';
import { fetchAggregated } from '../server/connect/aggregated.ts';
import { checkEncodable } from '../server/openapi/encode-document.ts';
import type { Parts } from './parts.ts';
import { MASTERS_GROUP } from '../../api/meta/system-users.ts';

const CONVERSION_TIMEOUT_SECONDS = 30;
/**
 * The limits of a conversion's response. A stored object has managed fields in addition to what its client sent, so the limits
 * are above those of request bodies: otherwise an object that one user wrote would make a list fail for others. A review has
 * three levels around each object.
 */
const CONVERSION_ANSWER = { maxBytes: 8 * 1024 * 1024, maxValues: 600_000, outerDepth: 3 };

/**
 * Returns the function that calls a conversion webhook, whose address is found as that of an admission webhook is. A call
 * rejects if there is no response within 30 seconds, and if the response has an error status or is beyond the limits.
 */
export function conversionCalls({ listers, dialer, metrics, clock }: Parts): CallConversion {
  const found = { services: listers.of(services), endpointSlices: listers.of(endpointSlices), random: Math.random };
  // kube-apiserver sends this user agent to conversion webhooks as well.
  const client = new WebhookClient('kube-apiserver-admission', {
    dialer,
    measured: { observer: clientMetrics(metrics), clock },
  });
  return async (config, body) => {
    const signal = AbortSignal.timeout(CONVERSION_TIMEOUT_SECONDS * 1000);
    let answer;
    try {
      const endpoint = await endpointOf(config, CONVERSION_TIMEOUT_SECONDS, found);
      const { maxBytes } = CONVERSION_ANSWER;
      answer = await client.call(endpoint, { method: 'POST', body, signal, maxBytes });
    } catch (error) {
      throw new Error(failedCall(config, CONVERSION_TIMEOUT_SECONDS, error, signal.aborted), { cause: error });
    }
    const fault = answerFault(answer);
    if (fault !== undefined) throw new Error(fault);
    return decodedReview(answer.body, CONVERSION_ANSWER);
  };
}

/** Creates the aggregator and starts the registration of APIServices. Everything stops with the signal of the parts. */
export function createAggregator(parts: Parts): Aggregator {
  const { listers, clients, clock, logger, security, metrics, dialer, signal } = parts;
  const client = clients.as(SYSTEM_USER.name, { groups: [MASTERS_GROUP], fieldManager: 'kube-apiserver' });
  const definitions = listers.of(customResourceDefinitions);
  startAutoRegistration({ definitions, services: listers.of(apiServices), client, clock, logger, signal });
  return new Aggregator({
    definitions: listers.of(apiServices),
    services: listers.of(services),
    endpointSlices: listers.of(endpointSlices),
    client,
    clock,
    logger,
    signal,
    random: Math.random,
    metrics: aggregationMetrics(metrics),
    frontProxy() {
      const { frontProxyClient } = security.pki.material();
      return { cert: frontProxyClient.certificatePem, key: frontProxyClient.privateKeyPem };
    },
    fetchJson: (target, path, headers, maxBytes) => fetchAggregated(dialer, target, { path, headers, maxBytes }),
    checkOpenApi: checkEncodable,
  });
}
