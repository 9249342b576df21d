/** Starts what runs beside the API server in this process: controllers, scheduler, the `kubernetes` service. */
import { queueMetrics } from '../../api/component/queue-metrics.ts';
import { dirname } from 'node:path';
import type { Client } from '../../api/machinery/client.ts';
import { Informers } from '../../api/machinery/informer.ts';
import { typedClient } from '../../api/machinery/typed-client.ts';
import type { Aggregator } from '../aggregation/aggregator.ts';
import type { Parts } from './assembly.ts';
import { keepAuthenticationInfo } from '../authentication/authentication-info.ts';
import { SigningRefused } from '../controllers/certificates/certificate-signer.ts';
import { startControllers } from '../controllers/start.ts';
import { keepKubernetesService } from '../bootstrap/kubernetes-service.ts';
import { parseCsr } from '../../api/pki/certificate-request.ts';
import { SIGNER_NAMES, signRequest } from '../pki/signers.ts';
import { controllerOptions } from '../options/controllers.ts';
import { primaryAddress } from './host-address.ts';
import { ensureClusterInfo } from '../bootstrap/node-bootstrap.ts';
import { readSignedBundle } from '../pki/authority-rotation.ts';
import { keepServiceAddresses, stateOf } from '../bootstrap/service-address-repair.ts';
import { startScheduler } from '../scheduler/scheduler.ts';

const AUTOSCALER = 'system:serviceaccount:kube-system:horizontal-pod-autoscaler';
const MASTERS = ['system:masters', 'system:authenticated'];

/** Groups of a component's user. */
function groupsOf(user: string): string[] {
  const [, , namespace] = user.split(':');
  if (!user.startsWith('system:serviceaccount:')) return ['system:authenticated'];
  return ['system:serviceaccounts', `system:serviceaccounts:${namespace ?? ''}`, 'system:authenticated'];
}

/** Gives what ends the loops, in the order in which they were started. */
export async function startLoops(
  parts: Parts,
  aggregator: Aggregator,
  port: number,
): Promise<readonly (() => Promise<void>)[]> {
  const { flags, clock, turns, logger, registry, pki, clientFor } = parts;
  const reader = clientFor('system:kube-controller-manager', MASTERS, 'kube-controller-manager', true);
  const informers = new Informers({ client: reader, clock, logger, watchList: false });
  const ends: (() => Promise<void>)[] = [() => informers.close()];
  const component = (user: string): Client => clientFor(user, groupsOf(user), 'kube-controller-manager');
  const system = clientFor('system:apiserver', MASTERS, 'kube-apiserver');
  const address = flags.advertiseAddress === '' ? primaryAddress() : flags.advertiseAddress;
  const host = flags.externalHostname === '' ? address : flags.externalHostname;
  await ensureClusterInfo(system, {
    server: `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
    ca: pki.material().ca.certificatePem,
    signedBundle: await readSignedBundle(dirname(pki.paths.caCertificate)),
  });
  const { security } = parts;
  const published = await keepAuthenticationInfo({
    info: {
      clientCa: security.clientCa,
      frontProxyCa: security.frontProxyCa,
      allowedNames: flags.requestheaderAllowedNames,
      usernameHeaders: flags.requestheaderUsernameHeaders,
      uidHeaders: flags.requestheaderUidHeaders,
      groupHeaders: flags.requestheaderGroupHeaders,
      extraHeadersPrefix: flags.requestheaderExtraHeadersPrefix,
    },
    client: typedClient(system),
    clock,
    logger,
  });
  ends.push(() => published.close());
  const service = keepKubernetesService({
    client: system,
    clock,
    logger,
    address,
    port,
    serviceClusterCidrs: flags.serviceClusterIpRange,
  });
  ends.push(() => service.close());
  const addresses = keepServiceAddresses({
    client: system,
    informers,
    clock,
    logger: logger.child({ component: 'service-addresses' }),
    state: stateOf(registry.stores),
    serviceClusterCidrs: flags.serviceClusterIpRange,
  });
  ends.push(() => addresses.close());
  const controllers = startControllers({
    clientFor: component,
    informers,
    clock,
    turns,
    logger,
    catalog: registry.catalog,
    rootCaPem: pki.material().ca.certificatePem,
    tokenSigner: security.issuer,
    certificateSigner: {
      signerNames: SIGNER_NAMES,
      sign(request) {
        const { signerName, usages = [], expirationSeconds, request: encoded } = request.spec;
        const signed = signRequest(
          { signerName, usages, expirationSeconds, request: parseCsr(Buffer.from(encoded, 'base64').toString()) },
          pki.material().ca,
          clock.now(),
          flags.clusterSigningDuration,
        );
        if ('refused' in signed) throw new SigningRefused(signed.refused);
        return signed.certificate;
      },
    },
    getMetrics: (path) => aggregator.get(path, { name: AUTOSCALER, groups: groupsOf(AUTOSCALER) }),
    options: controllerOptions(flags),
    observeQueue: queueMetrics(parts.metrics, clock),
  });
  ends.push(() => controllers.close());
  if (flags.scheduler) {
    const client = clientFor('system:kube-scheduler', ['system:authenticated'], 'kube-scheduler');
    const scheduler = startScheduler({
      client,
      informers,
      clock,
      logger: logger.child({ component: 'scheduler' }),
      random: Math.random,
    });
    ends.push(() => scheduler.stop());
  }
  return ends;
}
