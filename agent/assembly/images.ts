/** Creates the image manager and the image garbage collection from the options: credentials, pull records, metrics. */
import type { Pod } from '../base/model/pod.ts';
import type { ReferencedObjects } from '../base/model/referenced-objects.ts';
import type { NodeInfo } from '../pods/workers/node-info.ts';
import type { PodStartups } from '../pods/metrics/pod-startup.ts';
import { pullMetrics } from '../resources/statistics/pull-metrics.ts';
import type { StorageUsage } from '../resources/statistics/storage-usage.ts';
import type { CredentialProviders } from '../runtime/images/credential-providers.ts';
import { ImageGc } from '../runtime/images/image-gc.ts';
import { ImageManager } from '../runtime/images/image-manager.ts';
import { importedImages } from '../runtime/images/imported-images.ts';
import { nodeCredentials } from '../runtime/images/pull-credentials.ts';
import { PullRecords } from '../runtime/images/pull-records.ts';
import { PullVerification, type VerificationPolicy } from '../runtime/images/pull-verification.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { Base } from './base.ts';
import type { AgentEvents } from './events.ts';
import type { Part } from './lifecycle.ts';

interface ImagesDeps {
  readonly runtime: Runtime;
  readonly events: AgentEvents;
  readonly node: Pick<NodeInfo, 'node'>;
  readonly objects: ReferencedObjects;
  readonly storage: Pick<StorageUsage, 'node'>;
  readonly providers: CredentialProviders | undefined;
  readonly metrics: MetricsRegistry;
  readonly startups: Pick<PodStartups, 'pulled'>;
}

/** The image manager with the garbage collection that runs beside it. */
export interface Images extends Part {
  readonly manager: ImageManager;
  readonly gc: ImageGc;
}

/**
 * Creates the image manager and the garbage collector of images. Resolves when the records of earlier pulls have been read from
 * the root directory.
 */
export async function createImages(base: Base, deps: ImagesDeps): Promise<Images> {
  const { flags, clock, logger, rootDirectory } = base;
  const { runtime, events, objects, providers, metrics, startups } = deps;
  const verification = await pullVerification(base, deps);
  const gc = createImageGc(base, deps, verification);
  const requests = metrics.counter({
    name: 'kubelet_image_manager_ensure_image_requests_total',
    help: 'Number of ensure-image requests processed by the kubelet.',
    labels: ['pull_policy', 'present_locally', 'pull_required'],
  });
  const manager = new ImageManager({
    runtime,
    clock,
    events,
    objects,
    serialPulls: flags.serializeImagePulls,
    maxParallelPulls: flags.maxParallelImagePulls,
    registryQps: flags.registryQps,
    registryBurst: flags.registryBurst,
    providers: async (image: string, pod: Pod) => [
      ...(await nodeCredentials(image, rootDirectory, logger)),
      ...((await providers?.credentials(image, pod)) ?? []),
    ],
    ...(verification === undefined ? {} : { verification }),
    onUsed: (id) => gc.used(id),
    onPull: (podUid, tookMs) => startups.pulled(podUid, tookMs),
    onPulled: pullMetrics(metrics),
    onRequest: ({ pullPolicy, isPresent, isPullRequired }) =>
      requests
        .with(pullPolicy.toLowerCase(), String(isPresent ?? 'unknown'), String(isPullRequired ?? 'unknown'))
        .inc(),
  });
  return { manager, gc, run: (signal) => gc.run(signal) };
}

function createImageGc(
  { flags, clock, logger, rootDirectory }: Base,
  { runtime, events, node, storage, metrics }: ImagesDeps,
  verification: PullVerification | undefined,
): ImageGc {
  const removed = metrics.counter({
    name: 'kubelet_image_garbage_collected_total',
    help: 'Total number of images garbage collected by the kubelet, whether through disk usage or image age.',
    labels: ['reason'],
  });
  return new ImageGc({
    policy: {
      highThresholdPercent: flags.imageGcHighThreshold,
      lowThresholdPercent: flags.imageGcLowThreshold,
      minAgeMs: flags.minimumImageTtlDuration,
      maxAgeMs: flags.imageMaximumGcAge,
    },
    runtime,
    clock,
    logger,
    space: async () => (await storage.node()).images.filesystem,
    protectedImages: async () => new Set([...(await importedImages(rootDirectory)), flags.podInfraContainerImage]),
    nodeEvent: (reason, message) => events.nodeEvent(node.node(), reason, message),
    onRemoved: (reason) => removed.with(reason).inc(),
    onListed: async (ids, atMs) => verification?.prune(ids, atMs),
  });
}

async function pullVerification(
  { flags, effective, clock, logger, rootDirectory }: Base,
  { runtime, metrics }: ImagesDeps,
): Promise<PullVerification | undefined> {
  const checks = metrics.counter({
    name: 'kubelet_imagemanager_image_mustpull_checks_total',
    help: 'Counter for how many times kubelet checked whether credentials need to be re-verified to access an image',
    labels: ['result'],
  });
  const gauge = (name: string, help: string) => metrics.gauge({ name, help }).with();
  const intents = gauge('kubelet_imagemanager_ondisk_pullintents', 'Number of ImagePullIntents stored on disk.');
  const pulled = gauge('kubelet_imagemanager_ondisk_pulledrecords', 'Number of ImagePulledRecords stored on disk.');
  if (!effective.gates.enabled('KubeletEnsureSecretPulledImages')) return undefined;
  const records = new PullRecords(rootDirectory, logger);
  await records.load();
  metrics.collect(() => {
    intents.set(records.intents.size);
    pulled.set(records.pulled.size);
  });
  const verification = new PullVerification({
    policy: flags.imagePullCredentialsVerificationPolicy as VerificationPolicy,
    allowlist: flags.preloadedImagesVerificationAllowlist,
    records,
    clock,
    logger,
    onCheck: (result) => checks.with(result).inc(),
  });
  await verification
    .recordInterrupted(() => runtime.listImages())
    .catch((error: unknown) => logger.error({ err: error }, 'Cannot check for image pulls that did not complete'));
  return verification;
}
