/** The image manager by the agent's options: credentials of the node and its plugins, pull records, figures. */
import type { Pod, PodEventRecorder, ReferencedObjects } from '../model/core-types.ts';
import type { CredentialProviders } from '../runtime/images/credential-providers.ts';
import { ImageManager } from '../runtime/images/image-manager.ts';
import { nodeCredentials } from '../runtime/images/pull-credentials.ts';
import { PullRecords } from '../runtime/images/pull-records.ts';
import { PullVerification, type VerificationPolicy } from '../runtime/images/pull-verification.ts';
import type { MetricsRegistry } from '../../api/component/metrics.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { Base } from './base.ts';

export interface ImagesDeps {
  readonly runtime: Runtime;
  readonly events: PodEventRecorder;
  readonly objects: ReferencedObjects;
  readonly providers: CredentialProviders | undefined;
  readonly metrics: MetricsRegistry;
  readonly onUsed: (imageId: string) => void;
}

export interface Images {
  readonly manager: ImageManager;
  /** The images that there were at a time (wall clock): records of others go. */
  readonly prune: (ids: ReadonlySet<string>, atMs: number) => Promise<void>;
}

export async function createImages(base: Base, deps: ImagesDeps): Promise<Images> {
  const { flags, clock, logger, rootDirectory } = base;
  const { runtime, events, objects, providers, metrics, onUsed } = deps;
  const verification = await pullVerification(base, deps);
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
    onUsed,
    onRequest: ({ pullPolicy, isPresent, isPullRequired }) =>
      requests
        .with(pullPolicy.toLowerCase(), String(isPresent ?? 'unknown'), String(isPullRequired ?? 'unknown'))
        .inc(),
  });
  return { manager, prune: async (ids, atMs) => verification?.prune(ids, atMs) };
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
    .takeUp(() => runtime.listImages())
    .catch((error: unknown) => logger.error({ err: error }, 'Pulls that were cut short cannot be looked for'));
  return verification;
}
