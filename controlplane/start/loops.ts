/** Starts the loops beside the API server in this process: the `kubernetes` service, controllers and scheduler. */
import { queueMetrics } from '../../api/machinery/queue-metrics.ts';
import type { QueueObserver } from '../../api/machinery/work-queue.ts';
import { typedClient } from '../../api/client/typed-client.ts';
import type { Aggregator } from '../registry/aggregation/aggregator.ts';
import type { Parts } from './parts.ts';
import { keepAuthenticationInfo } from '../security/authentication/authentication-info.ts';
import type { KindTypes } from '../controllers/admission-policy/type-checking.ts';
import { SigningRefused } from '../controllers/certificates/certificate-signer.ts';
import { enablesAny } from '../controllers/controller-names.ts';
import type { Audit } from '../server/audit/audit.ts';
import type { ControllerKeys } from '../controllers/controller-table.ts';
import { celTypeOf } from '../registry/schemas/rule-types.ts';
import { loadControllers, startControllers } from '../controllers/start.ts';
import type { Scheduler } from '../scheduler/scheduler.ts';
import { background } from '../../api/machinery/background.ts';
import { SYSTEM_USER } from '../model/system-user.ts';
import { parseCsr } from '../../api/pki/certificate-request.ts';
import { SIGNER_NAMES, signRequest } from '../security/pki/signers.ts';
import { controllerOptions } from '../options/controllers.ts';
import { keepPolicyRights } from '../controllers/cluster-objects/policy-rights.ts';
import { keepServiceAddresses, stateOf } from '../controllers/cluster-objects/service-address-repair.ts';
import { isPartEnabled, portSpan } from '../options/parts.ts';
import { storageBackendOf } from '../options/storage.ts';
import { agentConnection, volumeAgents } from './volume-agents.ts';
import { keepPublished } from './published-cluster.ts';
import { startManifestsLoop } from './manifests-loop.ts';
import { type ElectedLoop, startTerms, type TermContext } from './terms.ts';
import { whenRoom } from './when-room.ts';
import { AUTHENTICATED_GROUP } from '../../api/meta/system-users.ts';

const AUTOSCALER = 'system:serviceaccount:kube-system:horizontal-pod-autoscaler';

/** Returns the groups of a component's user beside `system:authenticated`. */
function groupsOf(user: string): string[] {
  const [, , namespace] = user.split(':');
  if (!user.startsWith('system:serviceaccount:')) return [];
  return ['system:serviceaccounts', `system:serviceaccounts:${namespace ?? ''}`];
}

/**
 * Starts the loops. `port` is where the server listens. Resolves when the address and the authentication of the API are
 * published, or the disk is found to be full. Rejects if they cannot be published for another reason. `loaded` resolves when
 * the modules of controllers and scheduler are loaded.
 */
export async function startLoops(
  parts: Parts,
  { aggregator, audit }: { readonly aggregator: Aggregator; readonly audit: Audit | undefined },
  port: number,
): Promise<{ readonly loaded: Promise<void> }> {
  const { flags } = parts;
  await keepPublished(parts, port);
  await whenRoom(parts, 'The configuration of authentication', () => publishAuthentication(parts));
  const observeQueue = queueMetrics(parts.metrics, parts.clock);
  const hasControllers = enablesAny(flags.controllers);
  await startManifestsLoop(parts, audit);
  const loaded = loadWork(parts, controllerKeys(parts, aggregator));
  // These loops have a Lease of their own, because they also run while a kube-controller-manager holds that of the controllers.
  const nodes: ElectedLoop = {
    lease: 'orchlet-apiserver',
    component: 'orchlet-apiserver',
    user: SYSTEM_USER.name,
    start: (context) => keepForNodes(parts, context),
  };
  const controllers: ElectedLoop = {
    lease: flags.leaderElectResourceName,
    component: 'kube-controller-manager',
    user: 'system:kube-controller-manager',
    start: (context) => startControllerLoops(parts, context, { aggregator, observeQueue, loaded }),
  };
  const scheduler: ElectedLoop = {
    lease: 'kube-scheduler',
    component: 'default-scheduler',
    user: 'system:kube-scheduler',
    start: (context) => startSchedulerLoop(parts, context, loaded),
  };
  // A process without controllers leaves their Lease to one that has some.
  const loops = [nodes, ...(hasControllers ? [controllers] : []), ...(flags.scheduler ? [scheduler] : [])];
  startTerms(parts, loops);
  return { loaded };
}

/**
 * Loads the modules of controllers and scheduler while the first requests are served. A process does so although it is not
 * elected yet: an upgrade may have replaced the program on the disk when it is. Never rejects: work whose modules cannot be
 * loaded fails when it starts.
 */
async function loadWork({ flags, isClosing }: Parts, keys: ControllerKeys): Promise<void> {
  await loadControllers({ keys, enabled: flags.controllers, isOver: isClosing });
  if (flags.scheduler && !isClosing()) await import('../scheduler/scheduler.ts').catch(() => undefined);
}

function startSchedulerLoop(
  { clock, logger, clients, metrics, signal }: Parts,
  { informers, fence, onEnd }: TermContext,
  loaded: Promise<void>,
): void {
  let hasEnded = false;
  const start = async (): Promise<Scheduler | undefined> => {
    await loaded;
    const { startScheduler } = await import('../scheduler/scheduler.ts');
    if (hasEnded) return undefined;
    return startScheduler({
      client: fence(clients.as('system:kube-scheduler', { fieldManager: 'kube-scheduler' })),
      informers,
      clock,
      logger: logger.child({ component: 'scheduler' }),
      random: Math.random,
      metrics,
    });
  };
  const starting = start();
  background(starting, { logger, what: 'Starting the scheduler', signal });
  onEnd(async () => {
    hasEnded = true;
    await (await starting.catch(() => undefined))?.stop();
  });
}

/** Publishes how clients of the API are authenticated. */
async function publishAuthentication({ flags, clock, logger, clients, security, onClose }: Parts): Promise<void> {
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
    isShared: storageBackendOf(flags) === 'etcd3',
    client: typedClient(clients.system),
    clock,
    logger,
  });
  onClose(() => published.close());
}

/** Keeps what nodes need of the API: addresses of services, and the rights to enforce network policies. */
function keepForNodes(parts: Parts, { informers, fence, onEnd }: TermContext): void {
  const { flags, clock, logger, clients, registry } = parts;
  const client = fence(clients.system);
  const addresses = keepServiceAddresses({
    client,
    informers,
    clock,
    logger: logger.child({ component: 'service-addresses' }),
    state: stateOf(registry.stores),
    serviceClusterCidrs: flags.serviceClusterIpRange,
  });
  onEnd(() => addresses.close());
  if (!flags.nodeServices || !isPartEnabled(flags, 'network-policies')) return;
  const policyLogger = logger.child({ component: 'network-policies' });
  const rights = keepPolicyRights({ client, informers, clock, logger: policyLogger });
  onEnd(() => rights.close());
}

interface ControllerParts {
  readonly aggregator: Aggregator;
  readonly observeQueue: (name: string) => QueueObserver;
  readonly loaded: Promise<void>;
}

function startControllerLoops(
  parts: Parts,
  { informers, fence, onEnd }: TermContext,
  { aggregator, observeQueue, loaded }: ControllerParts,
): void {
  const { flags, clock, turns, logger, registry, clients } = parts;
  const controllers = startControllers({
    ...controllerKeys(parts, aggregator),
    loaded,
    clientFor: (user) => fence(clients.as(user, { groups: groupsOf(user), fieldManager: 'kube-controller-manager' })),
    informers,
    clock,
    turns,
    logger,
    catalog: registry.catalog,
    options: controllerOptions(flags),
    observeQueue,
  });
  onEnd(() => controllers.close());
}

/** Returns what some controllers need beside the API. The root CA is that of now; a signature uses the CA of its time. */
function controllerKeys(parts: Parts, aggregator: Aggregator): ControllerKeys {
  const { flags, clock, security } = parts;
  return {
    rootCaPem: security.pki.material().ca.certificatePem,
    tokenSigner: security.issuer,
    certificateSigner: {
      signerNames: SIGNER_NAMES,
      sign(request) {
        const { signerName, usages = [], expirationSeconds, request: encoded } = request.spec;
        const signed = signRequest(
          { signerName, usages, expirationSeconds, request: parseCsr(Buffer.from(encoded, 'base64').toString()) },
          security.pki.material().ca,
          clock.now(),
          flags.clusterSigningDuration,
        );
        if ('refused' in signed) throw new SigningRefused(signed.refused);
        return signed.certificate;
      },
    },
    getMetrics: (path) =>
      aggregator.get(path, { name: AUTOSCALER, groups: [...groupsOf(AUTOSCALER), AUTHENTICATED_GROUP] }),
    ...(isPartEnabled(flags, 'local-storage')
      ? { volumeAgents: volumeAgents(agentConnection(parts), flags.kubeletPreferredAddressTypes) }
      : {}),
    loadBalancers: {
      isEnabled: flags.nodeServices && isPartEnabled(flags, 'service-lb'),
      apiServerPort: flags.securePort,
      reservedPorts: flags.serviceLbReservedPorts.flatMap((text) => portSpan(text) ?? []),
    },
    kindTypes: kindTypes(parts),
  };
}

function kindTypes({ registry, schema, definitions }: Parts): KindTypes {
  return {
    resources: () => registry.catalog.resources(),
    structOf: ({ group, version, kind }) => schema.kind(group, version, kind),
    definedTypeOf({ group, version, kind }) {
      const info = registry.catalog
        .resources()
        .find((one) => one.group === group && one.version === version && one.kind === kind);
      const definedSchema = info === undefined ? undefined : definitions.schemaOf(info);
      return definedSchema === undefined ? undefined : celTypeOf(definedSchema, { isResource: true });
    },
  };
}
