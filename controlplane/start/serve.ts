/**
 * Runs the last phase of the start: the registry serves writes, custom resources are served, the objects that every cluster has
 * are created, the server listens, and the loops run.
 */
import { join } from 'node:path';
import { customResourceDefinitions } from '../../api/client/resources.ts';
import { builtinResources } from '../../api/schema/resources.ts';
import { buildAudit } from './build-audit.ts';
import { ensureSystemNamespaces, reconcileBootstrapPolicy } from '../security/authorization/bootstrap-reconcile.ts';
import { ensureDefaultObjects } from '../controllers/cluster-objects/default-objects.ts';
import { ensureNodeBootstrap } from '../controllers/cluster-objects/node-bootstrap.ts';
import { ensureLocalStorageRights } from '../controllers/cluster-objects/local-storage.ts';
import { isEnabled } from '../controllers/controller-names.ts';
import { isPartEnabled } from '../options/parts.ts';
import { agentConnection } from './volume-agents.ts';
import { ensureNodeServices } from '../controllers/cluster-objects/node-services.ts';
import { CustomResources } from '../registry/custom-resources/custom-resources.ts';
import { createAgentSummaries } from '../controllers/metrics-api/agent-summaries.ts';
import { METRICS_API, metricsRests } from '../controllers/metrics-api/metrics-api.ts';
import type { Rest } from '../model/rest.ts';
import { createFieldManagement } from '../registry/managed-fields.ts';
import { createDecoder } from '../registry/object-decoding.ts';
import { serveRegistry, type ServeOptions } from '../registry/served-rests.ts';
import { reviewEndpoints } from '../server/reviews/reviewers.ts';
import { reviewRests } from '../server/reviews/review-rest.ts';
import { conversionCalls, createAggregator } from './aggregation.ts';
import { createApiServer } from './api-server.ts';
import { startLoops } from './loops.ts';
import type { Parts } from './parts.ts';
import { stopFormerFirst } from './peers.ts';
import { otherServers, refuseOtherCa } from './published-cluster.ts';
import { whenRoom } from './when-room.ts';

const CLOSE_GRACE_MS = 3000;

/** A control plane that serves requests: how clients reach it. */
export interface Serving {
  /** The URL of the API, such as `https://127.0.0.1:6443`. */
  readonly url: string;
  readonly port: number;
  /** The kubeconfig of the administrator (YAML). */
  readonly kubeconfig: string;
  readonly kubeconfigPath: string;
  /** Resolves when the modules of controllers and scheduler are loaded. */
  readonly loaded: Promise<void>;
}

/**
 * Runs the last phase of the start. Resolves when the server listens and its loops have started. Whatever it opens is closed
 * through `onClose`.
 */
export async function serve(parts: Parts): Promise<Serving> {
  const { flags, clock, logger, metrics, registry, schema, admission, startHooks, security, onClose } = parts;
  const fieldManagement: ServeOptions['fieldManagement'] = (expected, _decoder, others) =>
    createFieldManagement(clock, expected, others);
  const audit = await buildAudit({ flags, clock, logger, metrics });
  if (audit !== undefined) onClose(() => audit.close());
  startHooks.done('admission');
  serveRegistry(registry, {
    schema,
    admission,
    fieldManagement,
    addressTypes: flags.kubeletPreferredAddressTypes,
    extensions: [
      ...reviewRests(reviewEndpoints(reviewersOptions(parts)), { schema, admission, fieldManagement }),
      ...(isPartEnabled(flags, 'metrics-server') ? usageRests(parts) : []),
    ],
  });
  const customResources = customResourcesOf(parts, fieldManagement);
  // The informer of the definitions was requested only now. The names that definitions have must be known before any is served.
  await parts.listers.synced();
  await customResources.start();
  startHooks.done('definitions');
  await refuseOtherCa(parts);
  await whenRoom(parts, 'Objects that every cluster has', () => bootstrap(parts));
  startHooks.done('bootstrap');
  const aggregator = createAggregator(parts);
  const server = createApiServer(parts, aggregator, audit);
  startHooks.done('aggregation');
  const { port } = await server.listen(flags.securePort, flags.bindAddress);
  parts.ownEndpoint.listensOn(port);
  onClose(() => server.close(CLOSE_GRACE_MS));
  const host = flags.bindAddress === '0.0.0.0' || flags.bindAddress === '::' ? '127.0.0.1' : flags.bindAddress;
  const url = `https://${host.includes(':') ? `[${host}]` : host}:${port}`;
  const kubeconfigPath = join(parts.directory, 'admin.kubeconfig');
  const kubeconfig = await security.pki.keepAdminKubeconfig({ path: kubeconfigPath, server: url });
  const { loaded } = await startLoops(parts, { aggregator, audit }, port);
  startHooks.done('loops');
  stopFormerFirst(parts, port);
  return { url, port, kubeconfig, kubeconfigPath, loaded };
}

function reviewersOptions({ flags, clock, listers, security }: Parts): Parameters<typeof reviewEndpoints>[0] {
  return {
    clock,
    listers,
    authorizer: security.authorizers.authorizer,
    rules: security.authorizers.rules,
    tokens: security.authenticators.tokens,
    anonymous: security.authenticators.anonymous,
    apiAudiences: security.audiences,
    issuer: security.issuer,
    extendExpiration: flags.serviceAccountExtendTokenExpiration,
    maxExpirationSeconds: flags.serviceAccountMaxTokenExpiration / 1000,
  };
}

/** Returns the usage of nodes and pods, which the agents report. */
function usageRests(parts: Parts): readonly Rest[] {
  const {
    registry: { stores },
    clock,
    flags,
    logger,
  } = parts;
  const summaries = createAgentSummaries({
    ...agentConnection(parts),
    clock,
    onFailure: (node, error) => logger.debug({ err: error, node }, 'The usage of a node could not be read'),
  });
  return metricsRests({
    nodes: stores.get('', 'nodes'),
    pods: stores.get('', 'pods'),
    summaries,
    addressTypes: flags.kubeletPreferredAddressTypes,
  });
}

function customResourcesOf(parts: Parts, fieldManagement: ServeOptions['fieldManagement']): CustomResources {
  const { registry, storage, admission, clock, logger, listers, schema, clients, definitions, signal } = parts;
  const metadata = schema.struct('io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta');
  if (metadata === undefined) throw new Error('the schema lacks ObjectMeta');
  return new CustomResources({
    catalog: registry.catalog,
    served: definitions,
    storage,
    admission,
    clock,
    logger,
    definitions: listers.of(customResourceDefinitions),
    client: clients.system,
    signal,
    schema,
    decoder: createDecoder(schema),
    fieldManagement,
    metadata,
    callConversion: conversionCalls(parts),
  });
}

/** Creates what every cluster has: namespaces, default roles and bindings, and further objects. */
async function bootstrap(parts: Parts): Promise<void> {
  const { clients, registry, flags, clock, logger } = parts;
  const groupVersions = [
    ...builtinResources().filter(
      ({ group, version, resource }) => registry.catalog.find(group, version, resource, '') !== undefined,
    ),
    ...(isPartEnabled(flags, 'metrics-server') ? [METRICS_API] : []),
  ];
  const hasLocalStorage =
    isPartEnabled(flags, 'local-storage') && isEnabled({ name: 'local-volume-controller' }, flags.controllers);
  await ensureSystemNamespaces(clients.system);
  // These write at the same time, so that their writes share commits.
  await Promise.all([
    reconcileBootstrapPolicy(clients.system),
    ensureNodeBootstrap(clients.system),
    ensureDefaultObjects(clients.system, {
      groupVersions,
      serviceClusterCidrs: flags.serviceClusterIpRange,
      nowMs: clock.now(),
    }),
    hasLocalStorage ? ensureLocalStorageRights(clients.system) : undefined,
  ]);
  if (flags.nodeServices)
    await ensureNodeServices(clients.system, {
      serviceClusterCidrs: flags.serviceClusterIpRange,
      servesNames: isPartEnabled(flags, 'name-server'),
      podNetwork: { mode: flags.podNetwork, ranges: flags.clusterCidr },
      enforcesPolicies: isPartEnabled(flags, 'network-policies'),
      otherServers: await otherServers(parts),
      logger,
    });
}
